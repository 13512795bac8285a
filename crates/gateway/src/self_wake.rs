//! Polls a task that wakes itself again at once, on the same thread.
//!
//! hyper reads a request's body in the same task that answers the request, and each of the two wakes the other. The
//! runtime takes that for a task that yields: it puts the task at the end of the queue and wakes another thread to
//! run it. One call then costs two thread switches that it does not need.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Polls in a row before other tasks get their turn. A request with a body needs three.
const TURNS: usize = 4;

/// The states of [`TaskWaker`]: the future is not being polled and was not woken; it is being polled; it was woken.
const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const WOKEN: u8 = 2;

/// Wakes the connection task, unless it is being polled and will see the wake itself.
#[derive(Debug, Default)]
struct TaskWaker {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // In the other states `SelfWake::poll` checks the state once more.
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) == IDLE {
            self.task.wake();
        }
    }
}

/// Polls `future`, and polls it again at once if it was woken meanwhile.
#[derive(Debug)]
pub(crate) struct SelfWake<F> {
    future: F,
    shared: Arc<TaskWaker>,
    /// `shared` as the future sees it.
    waker: Waker,
}

impl<F: Future + Unpin> SelfWake<F> {
    pub(crate) fn new(future: F) -> Self {
        let shared = Arc::<TaskWaker>::default();
        Self { future, waker: Arc::clone(&shared).into(), shared }
    }
}

impl<F: Future + Unpin> Future for SelfWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.shared.task.register(context.waker());
        for _ in 0..TURNS {
            // Not a plain store: this turn must see everything that happened before a wake that it clears.
            this.shared.state.swap(RUNNING, Ordering::AcqRel);
            if let Poll::Ready(output) =
                Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.waker))
            {
                return Poll::Ready(output);
            }
            let end = this.shared.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if end.is_ok() {
                return Poll::Pending;
            }
        }
        this.shared.state.swap(IDLE, Ordering::AcqRel);
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

    /// Polls once. Returns the result and how often the runtime was woken meanwhile.
    fn poll_once<F: Future + Unpin>(future: &mut F) -> (Poll<F::Output>, usize) {
        let runtime = Arc::<Runtime>::default();
        let waker = Waker::from(Arc::clone(&runtime));
        let polled = Pin::new(future).poll(&mut Context::from_waker(&waker));
        (polled, runtime.wakes.load(Ordering::Relaxed))
    }

    /// A future that wakes itself `times` times before it is ready.
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

    #[test]
    fn a_wake_before_the_first_poll_is_not_lost() {
        let mut future = SelfWake::new(std::future::ready(3));
        future.waker.wake_by_ref();
        assert_eq!(poll_once(&mut future), (Poll::Ready(3), 0));
    }

    #[test]
    fn several_wakes_between_two_polls_reach_the_runtime_once() {
        let mut future = SelfWake::new(std::future::pending::<()>());
        let runtime = Arc::<Runtime>::default();
        let waker = Waker::from(Arc::clone(&runtime));
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        for _ in 0..3 {
            future.waker.wake_by_ref();
        }
        assert_eq!(runtime.wakes.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_runtime_is_woken_through_the_waker_of_the_last_poll() {
        let mut future = SelfWake::new(std::future::pending::<()>());
        let [first, second] = [Arc::<Runtime>::default(), Arc::<Runtime>::default()];
        for runtime in [&first, &second] {
            let waker = Waker::from(Arc::clone(runtime));
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        future.waker.wake_by_ref();
        let wakes = [first, second].map(|runtime| runtime.wakes.load(Ordering::Relaxed));
        assert_eq!(wakes, [0, 1]);
    }

    /// Another thread wakes the future again and again while it also wakes itself. A lost wake leaves it waiting.
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
