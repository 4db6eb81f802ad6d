//! What GEOSEARCH and its kin search in: a circle, a rectangle or a polygon.

use super::cell::{Place, Rectangle};
use super::position::{place, unit};
use crate::args::Args;
use crate::double;
use crate::exec::{ReplyError, error};

/// A shape around the centre of a search; lengths are in metres, but for `unit_m`.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    kind: Kind,
    /// Metres of the unit that distances are answered in.
    pub unit_m: f64,
}

#[derive(Clone, Debug)]
enum Kind {
    Circle { radius_m: f64 },
    Box { width_m: f64, height_m: f64 },
    Polygon(Vec<Place>),
}

const TOO_FEW: ReplyError = error("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices");

impl Shape {
    /// A circle: the radius is argument `at`, its unit follows.
    pub fn circle(args: &Args<'_>, at: usize) -> Result<Shape, ReplyError> {
        let radius = double::parse(args.at(at)).ok_or(error("ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err(error("ERR radius cannot be negative"));
        }
        let unit_m = unit(args, at + 1)?;
        Ok(Shape { kind: Kind::Circle { radius_m: radius * unit_m }, unit_m })
    }

    /// A rectangle: width, height and their unit from argument `at` on.
    pub fn rectangle(args: &Args<'_>, at: usize) -> Result<Shape, ReplyError> {
        let width = double::parse(args.at(at)).ok_or(error("ERR need numeric width"))?;
        let height = double::parse(args.at(at + 1)).ok_or(error("ERR need numeric height"))?;
        if width < 0.0 || height < 0.0 {
            return Err(error("ERR height or width cannot be negative"));
        }
        let unit_m = unit(args, at + 2)?;
        Ok(Shape { kind: Kind::Box { width_m: width * unit_m, height_m: height * unit_m }, unit_m })
    }

    /// A polygon: the number of its corners is argument `at`, their longitudes and latitudes follow. Also the number of arguments.
    pub fn polygon(args: &Args<'_>, at: usize) -> Result<(Shape, usize), ReplyError> {
        let corners = usize::try_from(args.int(at)?).ok().filter(|corners| *corners >= 3);
        let corners = corners.ok_or(TOO_FEW)?;
        let last = corners.checked_mul(2).and_then(|words| words.checked_add(at));
        // As in Valkey, who announces more than there are is told the same.
        let last = last.filter(|last| *last < args.len()).ok_or(TOO_FEW)?;
        let corners = (at + 1..last).step_by(2).map(|i| place(args, i)).collect::<Result<_, _>>()?;
        Ok((Shape { kind: Kind::Polygon(corners), unit_m: 1.0 }, last + 1 - at))
    }

    /// Whether it is a `circle`, a `box` or a `polygon`.
    pub fn is(&self, kind: &str) -> bool {
        kind == match self.kind {
            Kind::Circle { .. } => "circle",
            Kind::Box { .. } => "box",
            Kind::Polygon(_) => "polygon",
        }
    }

    /// The centre, if the shape has one of its own: the mean of a polygon's corners.
    pub fn centre(&self) -> Option<Place> {
        let Kind::Polygon(corners) = &self.kind else { return None };
        let mean = |side: fn(&Place) -> f64| corners.iter().map(side).sum::<f64>() / corners.len() as f64;
        Some(Place { longitude: mean(|corner| corner.longitude), latitude: mean(|corner| corner.latitude) })
    }

    /// How far it reaches from its centre, and a rectangle that it lies in.
    pub fn extent(&self, centre: Place) -> (f64, Rectangle) {
        match &self.kind {
            Kind::Circle { radius_m } => (*radius_m, centre.surroundings(*radius_m, *radius_m)),
            Kind::Box { width_m, height_m } => {
                let (width_m, height_m) = (width_m / 2.0, height_m / 2.0);
                ((width_m * width_m + height_m * height_m).sqrt(), centre.surroundings(width_m, height_m))
            }
            Kind::Polygon(corners) => {
                let span = |side: fn(&Place) -> f64| {
                    corners.iter().map(side).fold((f64::MAX, f64::MIN), |(min, max), at| (min.min(at), max.max(at)))
                };
                let bounds =
                    Rectangle { longitude: span(|corner| corner.longitude), latitude: span(|corner| corner.latitude) };
                let ends = [
                    (bounds.longitude.0, bounds.latitude.0),
                    (bounds.longitude.0, bounds.latitude.1),
                    (bounds.longitude.1, bounds.latitude.0),
                    (bounds.longitude.1, bounds.latitude.1),
                ];
                let distances = ends.map(|(longitude, latitude)| centre.distance_m(Place { longitude, latitude }));
                (distances.into_iter().fold(0.0, f64::max), bounds)
            }
        }
    }

    /// The distance of a place from the centre in metres, if it lies within.
    pub fn distance_m(&self, centre: Place, place: Place) -> Option<f64> {
        let within = match &self.kind {
            Kind::Circle { radius_m } => {
                let distance_m = centre.distance_m(place);
                return (distance_m <= *radius_m).then_some(distance_m);
            }
            Kind::Box { width_m, height_m } => {
                let beside = Place { longitude: centre.longitude, latitude: place.latitude };
                place.latitude_distance_m(centre) <= height_m / 2.0 && place.distance_m(beside) <= width_m / 2.0
            }
            Kind::Polygon(corners) => is_within(corners, place),
        };
        within.then(|| centre.distance_m(place))
    }
}

/// Whether a place lies in a polygon: whether a ray to the east crosses an odd number of its sides (even-odd rule).
fn is_within(corners: &[Place], place: Place) -> bool {
    let sides = corners.iter().zip(corners.iter().cycle().skip(1));
    let crossed = sides.filter(|(a, b)| {
        (a.latitude > place.latitude) != (b.latitude > place.latitude) && {
            let part = (place.latitude - a.latitude) / (b.latitude - a.latitude);
            place.longitude < a.longitude + part * (b.longitude - a.longitude)
        }
    });
    crossed.count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_in_polygons_or_not() {
        let at = |longitude, latitude| Place { longitude, latitude };
        // An L.
        let corners = [at(0.0, 0.0), at(4.0, 0.0), at(4.0, 2.0), at(2.0, 2.0), at(2.0, 4.0), at(0.0, 4.0)];
        for (place, expected) in [
            (at(1.0, 1.0), true),
            (at(3.0, 1.0), true),
            (at(1.0, 3.0), true),
            (at(3.0, 3.0), false),
            (at(-1.0, 1.0), false),
            (at(5.0, 1.0), false),
        ] {
            assert_eq!(is_within(&corners, place), expected, "{place:?}");
        }
    }
}
