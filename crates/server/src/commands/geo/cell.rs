//! Geohash cells: a rectangle of longitudes and latitudes halved in turn, `step` times each, and its number.
//!
//! The number interleaves the bits of both, longitude's above latitude's. At 26 steps it has 52 bits, which a score holds exactly;
//! all places of a coarser cell have scores in one range. Latitudes end where the Mercator projection is cut (EPSG:3857).

use std::ops::Range;

/// Steps of a score.
pub(super) const STEPS: u32 = 26;

/// Longitudes and latitudes that are covered.
pub(super) const LONGITUDES: (f64, f64) = (-180.0, 180.0);
pub(super) const LATITUDES: (f64, f64) = (-85.051_128_78, 85.051_128_78);

/// Radius of the earth in metres: its quadratic mean.
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Half of the Mercator projection's width, in metres.
const MERCATOR_MAX_M: f64 = 20_037_726.37;

/// A place in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub longitude: f64,
    pub latitude: f64,
}

impl Place {
    /// The middle of a score's cell.
    pub fn of_score(score: f64) -> Place {
        // Scores of other sorted sets may be negative or too large: they become what Redis has made of them on x86-64.
        const ABOVE: f64 = 18_446_744_073_709_551_616.0; // 2^64
        let bits = match score {
            _ if score < 0.0 => (score as i64).cast_unsigned(),
            _ if score >= ABOVE => 0,
            _ => score as u64,
        };
        let area = Cell { bits, step: STEPS }.area();
        let middle = |(min, max): (f64, f64), limits: (f64, f64)| ((min + max) / 2.0).min(limits.1).max(limits.0);
        Place { longitude: middle(area.longitude, LONGITUDES), latitude: middle(area.latitude, LATITUDES) }
    }

    /// Great-circle distance in metres (haversine formula).
    pub fn distance_m(self, other: Place) -> f64 {
        let v = ((other.longitude.to_rad() - self.longitude.to_rad()) / 2.0).sin();
        if v == 0.0 {
            return self.latitude_distance_m(other);
        }
        let (from, to) = (self.latitude.to_rad(), other.latitude.to_rad());
        let u = ((to - from) / 2.0).sin();
        let a = u * u + from.cos() * to.cos() * v * v;
        2.0 * EARTH_RADIUS_M * a.sqrt().asin()
    }

    /// Distance along a meridian in metres.
    pub fn latitude_distance_m(self, other: Place) -> f64 {
        EARTH_RADIUS_M * (other.latitude.to_rad() - self.latitude.to_rad()).abs()
    }

    /// The rectangle around a place that reaches so many metres east and west, and north and south. Its width is that at the end
    /// nearer to the pole, where meridians are closer.
    pub fn surroundings(self, width_m: f64, height_m: f64) -> Rectangle {
        let latitudes = (height_m / EARTH_RADIUS_M).to_deg();
        let pole_ward = if self.latitude < 0.0 { self.latitude - latitudes } else { self.latitude + latitudes };
        let longitudes = (width_m / EARTH_RADIUS_M / pole_ward.to_rad().cos()).to_deg();
        Rectangle {
            longitude: (self.longitude - longitudes, self.longitude + longitudes),
            latitude: (self.latitude - latitudes, self.latitude + latitudes),
        }
    }
}

/// Degrees and radians by one constant, as Redis does: `f64::to_radians` rounds differently.
trait Angle {
    fn to_rad(self) -> f64;
    fn to_deg(self) -> f64;
}

const RADIANS: f64 = std::f64::consts::PI / 180.0;

impl Angle for f64 {
    fn to_rad(self) -> f64 {
        self * RADIANS
    }

    fn to_deg(self) -> f64 {
        self / RADIANS
    }
}

/// A rectangle in degrees; each side from its minimum to its maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rectangle {
    pub longitude: (f64, f64),
    pub latitude: (f64, f64),
}

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    bits: u64,
    step: u32,
}

const EVEN_BITS: u64 = 0x5555_5555_5555_5555;

impl Cell {
    /// The cell of a place, which must be covered, after so many steps (1 to 26).
    pub fn of(place: Place, step: u32) -> Cell {
        Cell::within(place, step, LONGITUDES, LATITUDES)
    }

    /// As [`Cell::of`], of other longitudes and latitudes.
    pub fn within(place: Place, step: u32, longitudes: (f64, f64), latitudes: (f64, f64)) -> Cell {
        let offset = |at: f64, (min, max): (f64, f64)| ((at - min) / (max - min) * (1_u64 << step) as f64) as u32;
        let (x, y) = (offset(place.longitude, longitudes), offset(place.latitude, latitudes));
        Cell { bits: spread(y) | spread(x) << 1, step }
    }

    /// The cell's number.
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// The scores of places in it.
    pub fn scores(self) -> Range<f64> {
        let aligned = |bits: u64| (bits << (2 * (STEPS - self.step))) as f64;
        aligned(self.bits)..aligned(self.bits + 1)
    }

    /// What it covers.
    pub fn area(self) -> Rectangle {
        let side = |at: u32, (min, max): (f64, f64)| {
            let part = |at: u32| min + f64::from(at) / (1_u64 << self.step) as f64 * (max - min);
            (part(at), part(at.wrapping_add(1)))
        };
        Rectangle { longitude: side(gather(self.bits >> 1), LONGITUDES), latitude: side(gather(self.bits), LATITUDES) }
    }

    /// The cell so many to the east and to the north, each -1, 0 or 1; at an end of the map that at the other end.
    pub fn beside(self, east: i8, north: i8) -> Cell {
        let used = u64::MAX >> (64 - 2 * self.step);
        let x = step_along(self.bits & !EVEN_BITS, EVEN_BITS & used, !EVEN_BITS & used, east);
        let y = step_along(self.bits & EVEN_BITS, !EVEN_BITS & used, EVEN_BITS & used, north);
        Cell { bits: x | y, step: self.step }
    }
}

/// Adds to or takes from the bits of one side; the other side's are first set or cleared so that a carry passes through them.
fn step_along(own: u64, others: u64, mask: u64, by: i8) -> u64 {
    let moved = match by {
        // Left as it is even beyond the mask: the easternmost longitude itself has a bit there, as in Redis.
        0 => return own,
        1.. => own.wrapping_add(others + 1),
        _ => (own | others).wrapping_sub(others + 1),
    };
    moved & mask
}

/// Moves each bit to twice its place (Anderson, Bit Twiddling Hacks, "Interleave bits by binary magic numbers").
fn spread(value: u32) -> u64 {
    let mut bits = u64::from(value);
    for (shift, mask) in [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, EVEN_BITS),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Takes every second bit.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & EVEN_BITS;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    u32::try_from(bits).expect("32 bits are left")
}

/// The cells that cover a search around a place that reaches `radius_m` at most and lies in `bounds`: the place's own, and those of
/// its eight neighbours that are needed.
pub(super) fn covering(place: Place, radius_m: f64, bounds: &Rectangle) -> Vec<Cell> {
    let mut step = steps_for(radius_m, place.latitude);
    let mut own = Cell::of(place, step);
    let reaches = own.beside(0, 1).area().latitude.1 >= bounds.latitude.1
        && own.beside(0, -1).area().latitude.0 <= bounds.latitude.0
        && own.beside(1, 0).area().longitude.1 >= bounds.longitude.1
        && own.beside(-1, 0).area().longitude.0 <= bounds.longitude.0;
    if step > 1 && !reaches {
        step -= 1;
        own = Cell::of(place, step);
    }
    let area = own.area();
    let needed = |east: i8, north: i8| {
        step < 2
            || !(north < 0 && area.latitude.0 < bounds.latitude.0
                || north > 0 && area.latitude.1 > bounds.latitude.1
                || east < 0 && area.longitude.0 < bounds.longitude.0
                || east > 0 && area.longitude.1 > bounds.longitude.1)
    };
    let mut cells = vec![own];
    let mut last = None;
    for (east, north) in [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)] {
        let cell = own.beside(east, north);
        // Cells of few steps have fewer than eight neighbours: those that follow each other may be one.
        if needed(east, north) && last != Some(cell) {
            cells.push(cell);
            last = Some(cell);
        }
    }
    cells
}

/// Steps at which a cell and its neighbours cover a radius.
fn steps_for(mut radius_m: f64, latitude: f64) -> u32 {
    if radius_m == 0.0 {
        return STEPS;
    }
    let mut step = 1_i32;
    while radius_m < MERCATOR_MAX_M {
        radius_m *= 2.0;
        step += 1;
    }
    step -= 2;
    // Towards the poles cells are narrower.
    step -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEPS.cast_signed()).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_spread_and_gathered() {
        for value in [0, 1, 2, 0xFFFF_FFFF, 0x1234_5678, 0x8000_0001] {
            assert_eq!(gather(spread(value)), value);
            assert_eq!(spread(value) & !EVEN_BITS, 0);
        }
    }

    /// Values of a redis-server.
    #[test]
    fn scores_are_those_of_redis() {
        let palermo = Place { longitude: 13.361_389, latitude: 38.115_556 };
        let catania = Place { longitude: 15.087_269, latitude: 37.502_669 };
        assert_eq!(Cell::of(palermo, STEPS).bits(), 3_479_099_956_230_698);
        assert_eq!(Cell::of(catania, STEPS).bits(), 3_479_447_370_796_909);
        let stored = |place| Place::of_score(Cell::of(place, STEPS).bits() as f64);
        assert_eq!(format!("{:.4}", stored(palermo).distance_m(stored(catania))), "166274.1516");
    }

    #[test]
    fn neighbours_lie_beside() {
        let cell = Cell::of(Place { longitude: 10.0, latitude: 20.0 }, 12);
        assert_eq!(cell.area().longitude.1, cell.beside(1, 0).area().longitude.0);
        assert_eq!(cell.area().latitude.0, cell.beside(0, -1).area().latitude.1);
        assert_eq!(cell.beside(1, 1).beside(-1, -1), cell);
        let corner = Cell::of(Place { longitude: 179.9, latitude: 85.0 }, 3);
        assert_eq!(corner.beside(1, 0).area().longitude.0, -180.0);
    }
}
