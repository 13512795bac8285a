//! The process outside the fence that the attempts aim at. It listens on every kind of socket, keeps secrets in every
//! place, and reports what reached it for each line that it reads.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::{MEMORY_SECRET, SEGMENT_SECRET, VictimAddress, VictimQueues, VictimReport};

use crate::processes::close_all_but;
use crate::system::{Errno, Fork, call, close, fork, leave, open, read};

/// Runs until the end of standard input.
pub(crate) fn be_victim(outside: &Path) -> Result<(), String> {
    note_signals();
    let victim = Victim::new(outside).map_err(|error| error.to_string())?;
    victim.serve().map_err(|error| error.to_string())
}

struct Victim {
    tcp: [TcpListener; 3],
    udp: UdpSocket,
    unix: [UnixListener; 2],
    unix_datagram: UnixDatagram,
    terminal: Terminal,
    segment: *mut libc::c_char,
    queue: Queue,
    address: VictimAddress,
}

/// A stream connection to the victim.
trait Connection: Read + Write + AsRawFd {}
impl<T: Read + Write + AsRawFd> Connection for T {}

/// The connections and texts that have arrived so far.
#[derive(Default)]
struct Seen {
    connections: Vec<Box<dyn Connection>>,
    received: BTreeSet<String>,
}

impl Victim {
    fn new(outside: &Path) -> Result<Self, Error> {
        let tcp = [
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("[::1]:0")?,
            TcpListener::bind("127.0.0.1:0")?,
        ];
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        let name = format!("ringfence-victim-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name)?;
        let unix =
            [UnixListener::bind(outside.join("stream.sock"))?, UnixListener::bind_addr(&abstract_address)?];
        let unix_datagram = UnixDatagram::bind(outside.join("datagram.sock"))?;
        let (shared_memory, segment) = make_segment()?;
        let queue = Queue::new(&name)?;
        let removed_queue = format!("{name}-removed");
        Queue::new(&removed_queue)?;
        let (queues, semaphore) = make_system_v_objects()?;
        let terminal = Terminal::new().map_err(|errno| Error::from_raw_os_error(errno.0))?;
        make_shared_object(&name)?;
        let secret: &'static mut str = Box::leak(MEMORY_SECRET.to_owned().into_boxed_str());
        let address = VictimAddress {
            pid: std::process::id().cast_signed(),
            tcp_port: tcp[0].local_addr()?.port(),
            tcp6_port: tcp[1].local_addr()?.port(),
            allowed_port: tcp[2].local_addr()?.port(),
            udp_port: udp.local_addr()?.port(),
            abstract_name: name.clone(),
            shared_memory,
            queue: name.clone(),
            shared_object: name,
            terminal: terminal.path.clone(),
            removed_queue,
            queues,
            semaphore,
            secret_address: secret.as_ptr().addr(),
        };
        for listener in &tcp {
            listener.set_nonblocking(true)?;
        }
        for listener in &unix {
            listener.set_nonblocking(true)?;
        }
        udp.set_nonblocking(true)?;
        unix_datagram.set_nonblocking(true)?;
        Ok(Self { tcp, udp, unix, unix_datagram, terminal, segment, queue, address })
    }

    fn serve(&self) -> Result<(), Error> {
        let mut stdin = std::io::stdin().lock();
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", serde_json::to_string(&self.address)?)?;
        let mut seen = Seen::default();
        loop {
            let is_asked = self.wait(&seen.connections);
            while self.take_one(&mut seen)? {}
            if is_asked {
                let mut line = [0; 100];
                match stdin.read(&mut line) {
                    Ok(0) => return Ok(()),
                    Ok(_) => writeln!(stdout, "{}", serde_json::to_string(&self.report(&seen)?)?)?,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Waits until something arrives. Returns true if standard input is ready.
    fn wait(&self, connections: &[Box<dyn Connection>]) -> bool {
        let mut descriptors: Vec<RawFd> = vec![0];
        descriptors.extend(self.tcp.iter().map(AsRawFd::as_raw_fd));
        descriptors.extend(self.unix.iter().map(AsRawFd::as_raw_fd));
        descriptors.extend([self.udp.as_raw_fd(), self.unix_datagram.as_raw_fd(), self.terminal.controller]);
        descriptors.extend(connections.iter().map(|connection| connection.as_raw_fd()));
        let mut polled: Vec<libc::pollfd> =
            descriptors.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the elements that are pointed to live until the call returns.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) };
        // After a signal the descriptors' states are undefined.
        ready > 0 && polled[0].revents != 0
    }

    /// Receives one pending item; returns false if there was none.
    fn take_one(&self, seen: &mut Seen) -> Result<bool, Error> {
        for listener in &self.tcp {
            if let Some((stream, _)) = unless_empty(listener.accept())? {
                stream.set_nonblocking(true)?;
                seen.connections.push(Box::new(stream));
                return Ok(true);
            }
        }
        for listener in &self.unix {
            if let Some((stream, _)) = unless_empty(listener.accept())? {
                stream.set_nonblocking(true)?;
                seen.connections.push(Box::new(stream));
                return Ok(true);
            }
        }
        let mut text = [0; 100];
        let mut terminal = &self.terminal;
        for received in
            [self.udp.recv(&mut text), self.unix_datagram.recv(&mut text), terminal.read(&mut text)]
        {
            if let Some(length) = unless_empty(received)? {
                seen.received.insert(String::from_utf8_lossy(&text[..length]).into_owned());
                return Ok(true);
            }
        }
        Ok(seen.hear_connections())
    }

    fn report(&self, seen: &Seen) -> Result<VictimReport, Error> {
        // SAFETY: the segment is one page long and its last byte is never written.
        let segment = unsafe { CStr::from_ptr(self.segment) };
        Ok(VictimReport {
            received: seen.received.clone(),
            signals: signals_that_arrived(),
            segment: segment.to_string_lossy().into_owned(),
            queued: self.queue.length().map_err(|errno| Error::from_raw_os_error(errno.0))?,
            messages: messages_in(self.address.queues.written)
                .zip(messages_in(self.address.queues.read))
                .map(|(written, read)| [written, read]),
            has_queue: messages_in(self.address.queues.removed).is_some(),
            has_named_queue: Queue::exists(&self.address.removed_queue),
            // SAFETY: asks for a number and passes no pointer.
            semaphore: unsafe { libc::semctl(self.address.semaphore, 0, libc::GETVAL) },
        })
    }
}

impl Seen {
    /// Reads and answers every connection with data; returns false if there was none. Drops connections that ended.
    fn hear_connections(&mut self) -> bool {
        let mut heard = false;
        self.connections.retain_mut(|connection| {
            let mut text = [0; 100];
            match connection.read(&mut text) {
                Ok(length @ 1..) => {
                    heard = true;
                    self.received.insert(String::from_utf8_lossy(&text[..length]).into_owned());
                    connection.write_all(b"heard").is_ok()
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => true,
                Ok(0) | Err(_) => false,
            }
        });
        heard
    }
}

fn unless_empty<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a segment of shared memory, which the kernel removes with its last attachment.
fn make_segment() -> Result<(i32, *mut libc::c_char), Error> {
    const PAGE: usize = 4096;
    // SAFETY: a new segment, mapped at an address of the kernel's choice, touches no memory of Rust's; the text
    // and the zero after it fit into a page.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, PAGE, libc::IPC_CREAT | 0o600);
        let segment = libc::shmat(id, std::ptr::null(), 0);
        if id == -1 || segment.addr() == usize::MAX {
            return Err(Error::last_os_error());
        }
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        segment.cast::<u8>().copy_from(SEGMENT_SECRET.as_ptr(), SEGMENT_SECRET.len());
        Ok((id, segment.cast()))
    }
}

/// A POSIX queue that is removed when its process ends, however it ends.
struct Queue {
    descriptor: i32,
}

impl Queue {
    fn new(name: &str) -> Result<Self, Error> {
        let name = std::ffi::CString::new(name)?;
        // `struct mq_attr`: flags, maximum number of messages, maximum length, current number.
        let attributes = [0_i64, 4, 16, 0, 0, 0, 0, 0];
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let opened = call!(libc::SYS_mq_open, name, flags, 0o600, attributes.as_ptr());
        let opened = opened.and_then(|descriptor| remove_at_end(&name).map(|()| descriptor));
        let descriptor = opened.map_err(|errno| Error::from_raw_os_error(errno.0))? as i32;
        Ok(Self { descriptor })
    }

    fn exists(name: &str) -> bool {
        let name = std::ffi::CString::new(name).expect("a name without a zero");
        call!(libc::SYS_mq_open, name, libc::O_RDWR, 0, 0).map(|queue| close(queue as i32)).is_ok()
    }

    fn length(&self) -> Result<i64, Errno> {
        let mut attributes = [0_i64; 8];
        call!(libc::SYS_mq_getsetattr, self.descriptor, 0, attributes.as_mut_ptr())?;
        Ok(attributes[3])
    }
}

fn remove_at_end(queue: &CStr) -> Result<(), Errno> {
    at_end(|| drop(call!(libc::SYS_mq_unlink, queue)))
}

/// Forks a process that waits for the end of this one, however it ends, and then cleans up.
fn at_end(clean_up: impl FnOnce()) -> Result<(), Errno> {
    let mut ends = [0_i32; 2];
    call!(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC)?;
    let [end, _held_until_the_end] = ends;
    if let Fork::Child = fork()? {
        close_all_but(end);
        drop(read(end));
        clean_up();
        leave(0);
    }
    Ok(())
}

/// Makes three queues, the second with a message, and a semaphore of value 1. They are removed at the end.
fn make_system_v_objects() -> Result<(VictimQueues, i32), Error> {
    let flags = libc::IPC_CREAT | 0o600;
    // SAFETY: makes new objects of the kernel and passes no pointers.
    let [written, read, removed] = std::array::from_fn(|_| unsafe { libc::msgget(libc::IPC_PRIVATE, flags) });
    // SAFETY: as above.
    let semaphore = unsafe { libc::semget(libc::IPC_PRIVATE, 1, flags) };
    if [written, read, removed, semaphore].contains(&-1) {
        return Err(Error::last_os_error());
    }
    // SAFETY: passes a number where this command takes one.
    let initialised = unsafe { libc::semctl(semaphore, 0, libc::SETVAL, 1) };
    // A `struct msgbuf` of type 1 with one character.
    let message = [1_i64, 0];
    let sent = call!(libc::SYS_msgsnd, read, message.as_ptr(), 1, 0);
    if initialised == -1 || sent.is_err() {
        return Err(Error::last_os_error());
    }
    at_end(|| {
        for queue in [written, read, removed] {
            drop(call!(libc::SYS_msgctl, queue, libc::IPC_RMID, 0));
        }
        drop(call!(libc::SYS_semctl, semaphore, 0, libc::IPC_RMID, 0));
    })
    .map_err(|errno| Error::from_raw_os_error(errno.0))?;
    Ok((VictimQueues { written, read, removed }, semaphore))
}

/// The number of messages in a System V queue; `None` if it was removed.
fn messages_in(queue: i32) -> Option<u64> {
    let mut state = std::mem::MaybeUninit::<libc::msqid_ds>::uninit();
    call!(libc::SYS_msgctl, queue, libc::IPC_STAT, state.as_mut_ptr()).ok()?;
    // SAFETY: the call has succeeded and so filled the structure.
    Some(unsafe { state.assume_init() }.msg_qnum)
}

/// Makes a file of shared memory, which is removed at the end.
fn make_shared_object(name: &str) -> Result<(), Error> {
    let path = Path::new("/dev/shm").join(name);
    std::fs::write(&path, SEGMENT_SECRET)?;
    at_end(|| drop(std::fs::remove_file(path))).map_err(|errno| Error::from_raw_os_error(errno.0))
}

/// A terminal of the victim, as a terminal emulator has one.
struct Terminal {
    controller: RawFd,
    path: PathBuf,
}

impl Terminal {
    fn new() -> Result<Self, Errno> {
        let controller = open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK, 0)?;
        let (locked, mut number) = (0_i32, 0_u32);
        call!(libc::SYS_ioctl, controller, libc::TIOCSPTLCK, &raw const locked)?;
        call!(libc::SYS_ioctl, controller, libc::TIOCGPTN, &raw mut number)?;
        let path = PathBuf::from(format!("/dev/pts/{number}"));
        // Stays open: a terminal that no process uses looks as if it were hung up.
        open(&path, libc::O_RDWR | libc::O_NOCTTY, 0)?;
        Ok(Self { controller, path })
    }
}

impl Read for &Terminal {
    fn read(&mut self, text: &mut [u8]) -> Result<usize, Error> {
        let length = call!(libc::SYS_read, self.controller, text.as_mut_ptr(), text.len());
        length.map(|length| length as usize).map_err(|errno| Error::from_raw_os_error(errno.0))
    }
}

/// Bit n stands for signal n.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Signals that the attempts send.
const COUNTED: [i32; 5] = [libc::SIGUSR1, libc::SIGUSR2, 34, 35, 36];

extern "C" fn note_signal(signal: i32) {
    SIGNALS.fetch_or(1 << signal, Ordering::Relaxed);
}

fn note_signals() {
    let handler = note_signal as extern "C" fn(i32);
    for signal in COUNTED {
        // SAFETY: the handler only sets a bit of an atomic number.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

fn signals_that_arrived() -> BTreeSet<i32> {
    let arrived = SIGNALS.load(Ordering::Relaxed);
    COUNTED.into_iter().filter(|signal| arrived & (1 << signal) != 0).collect()
}
