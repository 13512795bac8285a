//! A task that wakes itself while it runs goes on at once, in the thread where it is.
//!
//! hyper reads a request's body in the same task that answers the request, and each of the two wakes the other.
//! To the runtime this is a task that gives way: it goes to the end of the queue, and another thread is woken to
//! take it. For one call that is two threads more than it needs.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// So often in a row before others get their turn. A request with a body needs three.
const TURNS: usize = 4;

/// What a bell is when nothing runs and nothing was heard.
const STILL: u8 = 0;
const RUNNING: u8 = 1;
const WOKEN: u8 = 2;

/// What is told that there is something to do.
#[derive(Debug, Default)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Where it runs or was woken before, somebody looks at this once more.
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) == STILL {
            self.task.wake();
        }
    }
}

/// Runs `future`, and runs it again at once when it was woken meanwhile.
#[derive(Debug)]
pub(crate) struct SelfWake<F> {
    future: F,
    bell: Arc<Bell>,
    waker: Waker,
}

impl<F: Future + Unpin> SelfWake<F> {
    pub(crate) fn new(future: F) -> Self {
        let bell = Arc::<Bell>::default();
        Self { future, waker: Arc::clone(&bell).into(), bell }
    }
}

impl<F: Future + Unpin> Future for SelfWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.bell.task.register(context.waker());
        for _ in 0..TURNS {
            // Not a plain store: what was done before a wake that this takes back must be seen by this turn.
            this.bell.state.swap(RUNNING, Ordering::AcqRel);
            if let Poll::Ready(output) =
                Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.waker))
            {
                return Poll::Ready(output);
            }
            let end = this.bell.state.compare_exchange(RUNNING, STILL, Ordering::AcqRel, Ordering::Acquire);
            if end.is_ok() {
                return Poll::Pending;
            }
        }
        this.bell.state.swap(STILL, Ordering::AcqRel);
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often the runtime is asked for another turn.
    #[derive(Default)]
    struct Runtime {
        wakes: AtomicUsize,
    }

    impl Wake for Runtime {
        fn wake(self: Arc<Self>) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls once; gives what came of it, and how often the runtime was woken meanwhile.
    fn poll_once<F: Future + Unpin>(future: &mut F) -> (Poll<F::Output>, usize) {
        let runtime = Arc::<Runtime>::default();
        let waker = Waker::from(Arc::clone(&runtime));
        let polled = Pin::new(future).poll(&mut Context::from_waker(&waker));
        (polled, runtime.wakes.load(Ordering::Relaxed))
    }

    /// Wakes itself so often before it is ready.
    fn wakes_itself(times: usize) -> impl Future<Output = usize> + Unpin {
        let mut turns = 0;
        poll_fn(move |context| {
            turns += 1;
            if turns > times {
                return Poll::Ready(turns);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn what_wakes_itself_goes_on_without_the_runtime() {
        let mut future = SelfWake::new(wakes_itself(TURNS - 1));
        assert_eq!(poll_once(&mut future), (Poll::Ready(TURNS), 0));
    }

    #[test]
    fn what_wakes_itself_without_end_gives_way() {
        let mut future = SelfWake::new(wakes_itself(TURNS));
        assert_eq!(poll_once(&mut future), (Poll::Pending, 1));
        assert_eq!(poll_once(&mut future), (Poll::Ready(TURNS + 1), 0));
    }

    #[test]
    fn a_wake_from_elsewhere_reaches_the_runtime() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut future = SelfWake::new(receiver);
        let runtime = Arc::<Runtime>::default();
        let waker = Waker::from(Arc::clone(&runtime));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(runtime.wakes.load(Ordering::Relaxed), 0);
        sender.send(7).unwrap();
        assert_eq!(runtime.wakes.load(Ordering::Relaxed), 1);
        assert_eq!(poll_once(&mut future), (Poll::Ready(Ok(7)), 0));
    }

    /// Another thread wakes it again and again while it also wakes itself; one wake that is lost leaves it waiting.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_is_lost_between_threads() {
        const NEWS: usize = 100_000;
        let (told, seen) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (sender, receiver) = std::sync::mpsc::channel::<Waker>();
        let teller = {
            let (told, seen) = (Arc::clone(&told), Arc::clone(&seen));
            std::thread::spawn(move || {
                let waker = receiver.recv().unwrap();
                for news in 1..=NEWS {
                    told.store(news, Ordering::Release);
                    waker.wake_by_ref();
                    while seen.load(Ordering::Acquire) < news {
                        std::hint::spin_loop();
                    }
                }
            })
        };
        let mut is_introduced = false;
        let listening = SelfWake::new(poll_fn(move |context| {
            if !std::mem::replace(&mut is_introduced, true) {
                sender.send(context.waker().clone()).unwrap();
            }
            let news = told.load(Ordering::Acquire);
            if seen.swap(news, Ordering::AcqRel) != news {
                context.waker().wake_by_ref();
            }
            if news == NEWS { Poll::Ready(()) } else { Poll::Pending }
        }));
        tokio::time::timeout(std::time::Duration::from_secs(60), tokio::spawn(listening))
            .await
            .expect("a wake was lost")
            .unwrap();
        teller.join().unwrap();
    }
}
