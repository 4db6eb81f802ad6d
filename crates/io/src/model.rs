//! [`Model`]: an I/O model of the papers, chosen at start, and [`ModelEngine`], which runs it.
//!
//! All of them share one worker over a boxed engine, so that the workers of the default engines are compiled without a
//! branch for them. What the worker itself does differently under a model it asks the engine, once per pass:
//! [`Engine::flushes`] and [`Engine::pipelines`], which are constants of the default engines.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::{Completion, ConnId, Counters, Engine, Epoll, Flush, Level, ListenerId, Order, Output, Socket, UringSend};
use crate::{Phases, PhasesOptions, Queue, QueueOptions, ReceiveBy, Uring, UringModelOptions, UringOptions};
use crate::{UringSendOptions, Waker};

/// A model of the papers and its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// epoll, otherwise than by default.
    Epoll(EpollOptions),
    /// io_uring, otherwise than by default.
    Uring(UringModelOptions),
    /// Replies through a ring that carries nothing else.
    UringSend(UringSendOptions),
    /// Replies written by a pool of threads.
    Queue(QueueOptions),
    /// Reading and writing in parallel phases.
    Phases(PhasesOptions),
}

/// Settings of [`Model::Epoll`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpollOptions {
    /// What the kernel reports.
    pub trigger: Trigger,
    /// When replies are sent.
    pub flush: Flush,
}

/// What epoll reports of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// That it can be read or written, in each wait.
    Level,
    /// That it has become so.
    Edge,
}

impl Model {
    /// The engine's name in the configuration.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Model::Epoll(_) => "epoll",
            Model::Uring(_) => "uring",
            Model::UringSend(_) => "uring-send",
            Model::Queue(_) => "queue",
            Model::Phases(_) => "phases",
        }
    }

    /// Whether it works only where io_uring does.
    pub(crate) fn needs_uring(&self) -> bool {
        match self {
            Model::Epoll(_) | Model::Queue(_) | Model::Phases(_) => false,
            Model::Uring(_) | Model::UringSend(_) => true,
        }
    }

    /// Makes an engine for the calling thread, which alone may use it.
    pub fn open(&self) -> io::Result<ModelEngine> {
        match self {
            Model::Epoll(options) => Ok(match options.trigger {
                Trigger::Level => ModelEngine::new(Level::new()?, options.flush),
                Trigger::Edge => ModelEngine::new(Epoll::new()?, options.flush),
            }),
            Model::Uring(papers) => {
                // Netty's rings have as many entries.
                let sq_entries =
                    if papers.receive == ReceiveBy::Poll { 4096 } else { UringOptions::default().sq_entries };
                let options = UringOptions { sq_entries, ..UringOptions::default() };
                Ok(ModelEngine::new(Uring::of_papers(options, *papers)?, Flush::Group))
            }
            Model::UringSend(options) => {
                // The kernel orders entries of one reply each.
                let flush = if options.order == Order::Kernel { Flush::Command } else { Flush::Loop };
                Ok(ModelEngine::new(UringSend::new(*options)?, flush))
            }
            // As Redis, at the end of its loop.
            Model::Queue(options) => Ok(ModelEngine::new(Queue::new(*options)?, Flush::Loop)),
            Model::Phases(options) => Ok(ModelEngine::new(Phases::new(*options)?, Flush::Loop)),
        }
    }
}

/// An engine of a model.
pub struct ModelEngine {
    engine: Box<dyn Engine>,
    flush: Flush,
}

impl ModelEngine {
    fn new(engine: impl Engine + 'static, flush: Flush) -> ModelEngine {
        ModelEngine { engine: Box::new(engine), flush }
    }
}

impl Engine for ModelEngine {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn flushes(&self) -> Flush {
        self.flush
    }

    fn pipelines(&self) -> bool {
        self.engine.pipelines()
    }

    fn listen(&mut self, id: ListenerId, socket: Socket) -> io::Result<()> {
        self.engine.listen(id, socket)
    }

    fn unlisten(&mut self, id: ListenerId) {
        self.engine.unlisten(id);
    }

    fn attach(&mut self, conn: ConnId, socket: Socket) -> io::Result<()> {
        self.engine.attach(conn, socket)
    }

    fn pause(&mut self, conn: ConnId) {
        self.engine.pause(conn);
    }

    fn resume(&mut self, conn: ConnId) {
        self.engine.resume(conn);
    }

    fn send(&mut self, conn: ConnId, output: Output) -> Option<(Output, io::Result<()>)> {
        self.engine.send(conn, output)
    }

    fn close(&mut self, conn: ConnId) {
        self.engine.close(conn);
    }

    fn shutdown_write(&mut self, conn: ConnId) {
        self.engine.shutdown_write(conn);
    }

    fn detach(&mut self, conn: ConnId) {
        self.engine.detach(conn);
    }

    fn unsent(&self, conn: ConnId) -> usize {
        self.engine.unsent(conn)
    }

    fn raw_fd(&self, conn: ConnId) -> Option<RawFd> {
        self.engine.raw_fd(conn)
    }

    fn waker(&self) -> Waker {
        self.engine.waker()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.engine.wait(timeout)
    }

    fn next(&mut self) -> Option<Completion<'_>> {
        self.engine.next()
    }

    fn look_ahead(&mut self) -> usize {
        self.engine.look_ahead()
    }

    fn upcoming(&self, at: usize) -> Option<(ConnId, &[u8])> {
        self.engine.upcoming(at)
    }

    fn outstanding(&self) -> usize {
        self.engine.outstanding()
    }

    fn counters(&self) -> Counters {
        self.engine.counters()
    }
}
