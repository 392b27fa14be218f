//! The handler of SIGBUS, and the handlers that it passes signals to.
//!
//! Each installation is a layer: a separate function that stores the handler that it replaced. For example, other code
//! replaces layer 0 with a handler H, and layer 1 then replaces H. Layer 1 passes a fault to H. H passes the fault to
//! layer 0, by calling or restoring layer 0. Layer 0 passes the fault to the handler that layer 0 replaced. If both
//! layers were one function, this function and H would pass the fault to each other forever.

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use libc::{c_int, c_void, siginfo_t};
use nix::sys::signal::Signal;

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

const LAYERS: [Handler; 8] = [
    on_bus_error::<0>,
    on_bus_error::<1>,
    on_bus_error::<2>,
    on_bus_error::<3>,
    on_bus_error::<4>,
    on_bus_error::<5>,
    on_bus_error::<6>,
    on_bus_error::<7>,
];

/// For each of the [`LAYERS`], the handler that the layer passes signals to: at first, the handler that the layer
/// replaced. Null stands for the default action, which ends the process.
static PREVIOUS: [AtomicPtr<libc::sigaction>; LAYERS.len()] = [const { AtomicPtr::new(ptr::null_mut()) }; LAYERS.len()];

/// The `si_code` of a signal that reports a memory error at an address that no thread is reading.
const ADVANCE_NOTICE: c_int = libc::BUS_MCEERR_AO;

/// Installs the next of the [`LAYERS`] as the handler of SIGBUS, unless one of them is already the current handler.
pub(super) fn ensure_installed() -> io::Result<()> {
    /// The number of [`LAYERS`] that have been installed.
    static USED: Mutex<usize> = Mutex::new(0);
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let current = current()?;
    if LAYERS[..*used].iter().any(|layer| address_of(*layer) == current.sa_sigaction) {
        return Ok(());
    }
    if *used == LAYERS.len() {
        return Err(io::Error::other(format!(
            "other code has replaced the handler of SIGBUS {used} times: install the other handler only once, before \
             this one"
        )));
    }
    stop_passing_to(&current, *used);
    // The previous handler is leaked because the new handler can read it at any time. It is stored before the new
    // handler can run.
    PREVIOUS[*used].store(Box::leak(Box::new(current)), Ordering::Release);
    let mut action = no_action();
    action.sa_sigaction = address_of(LAYERS[*used]);
    // The handler runs on the signal stack that std gives its threads, if there is one.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: The handler does only what is allowed in a signal handler: it uses atomics, makes system calls, restores
    // `errno`, and calls the previous handler. It takes no lock, allocates nothing, and does not panic.
    if unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *used += 1;
    Ok(())
}

/// Stops all [`LAYERS`] from passing signals to `handler`. Other code has installed `handler` again, so `handler` may
/// now pass signals to a layer. If that layer passed the signals back to `handler`, the layer and `handler` would call
/// each other forever.
fn stop_passing_to(handler: &libc::sigaction, used: usize) {
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&handler.sa_sigaction) {
        return;
    }
    for (layer, slot) in PREVIOUS.iter().enumerate().take(used) {
        // SAFETY: The pointer is null, or `ensure_installed` leaked its target, which is never written to again.
        let previous = unsafe { slot.load(Ordering::Acquire).as_ref() };
        if previous.is_some_and(|previous| previous.sa_sigaction == handler.sa_sigaction) {
            let fallback = if layer == 0 { ptr::null_mut() } else { PREVIOUS[0].load(Ordering::Acquire) };
            slot.store(fallback, Ordering::Release);
        }
    }
}

fn address_of(handler: Handler) -> libc::sighandler_t {
    handler as *const () as libc::sighandler_t
}

fn no_action() -> libc::sigaction {
    // SAFETY: `sigaction` is plain data, for which all zeros are a value.
    unsafe { mem::zeroed() }
}

fn current() -> io::Result<libc::sigaction> {
    let mut current = no_action();
    // SAFETY: The call changes no handler, because the second argument is null. The third argument points to a
    // `sigaction` of ours.
    match unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut current) } {
        0 => Ok(current),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Handles SIGBUS. If a guarded mapping contains the faulting address, replaces the missing page with zeros, and
/// returns to the instruction that faulted. Otherwise, passes the signal to the previous handler.
extern "C" fn on_bus_error<const LAYER: usize>(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: The call returns the address of this thread's `errno`, which exists as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's own `errno`.
    let before = unsafe { *errno };
    // SAFETY: With SA_SIGINFO the system passes a valid `siginfo_t`.
    let fault = unsafe { &*info };
    let code = fault.si_code;
    // SAFETY: If a fault raised the signal, the field contains the address of the fault. For other causes, the field
    // contains some number, which is not used.
    let address = unsafe { fault.si_addr() }.addr();
    let is_handled = if is_sent(code) {
        false
    } else if code == ADVANCE_NOTICE {
        // No thread is reading the address, so the range may be removed at any moment and must not be patched. A thread
        // that reads the address later gets a fault itself.
        super::is_guarded(address)
    } else {
        super::patch(address)
    };
    if !is_handled {
        pass_on(&PREVIOUS[LAYER], signal, info, context);
    }
    // SAFETY: `errno` points to this thread's own `errno`.
    unsafe { *errno = before };
}

/// Returns whether a process sent the signal. Unlike the signal of a fault, such a signal is not raised again when the
/// handler returns.
fn is_sent(code: c_int) -> bool {
    code <= 0
}

/// Handles a signal as the system would if the previous handler were installed.
fn pass_on(previous: &AtomicPtr<libc::sigaction>, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let pointer = previous.load(Ordering::Acquire);
    // SAFETY: `info` is valid, as in `on_bus_error`.
    let is_raised_again = unsafe { (*info).si_code } > 0;
    // SAFETY: The pointer is null, or `ensure_installed` leaked its target, which is never written to again.
    let handler = unsafe { pointer.as_ref() }.filter(|handler| handler.sa_sigaction != libc::SIG_DFL);
    match handler {
        None => end_process(signal, is_raised_again),
        // The system does not let a process ignore a fault.
        Some(handler) if handler.sa_sigaction == libc::SIG_IGN => {
            if is_raised_again {
                end_process(signal, true);
            }
        }
        Some(handler) => {
            if handler.sa_flags & libc::SA_RESETHAND != 0 {
                let _ = previous.compare_exchange(pointer, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
            }
            call(handler, signal, info, context);
            // A handler that gives up restores the default action and expects the fault to occur again. A signal that a
            // process sent does not occur again, so this function ends the process.
            if !is_raised_again && current().is_ok_and(|current| current.sa_sigaction == libc::SIG_DFL) {
                end_process(signal, false);
            }
        }
    }
}

/// Makes the signal end the process when the handler returns.
fn end_process(signal: c_int, is_raised_again: bool) {
    // SAFETY: The call is allowed in a signal handler, and touches no memory of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    if !is_raised_again {
        // SAFETY: The call is allowed in a signal handler, and touches no memory of ours. The signal is blocked until
        // the handler returns.
        unsafe { libc::raise(signal) };
    }
}

/// Calls a handler. During the call, blocks the signals that the handler was registered to block.
fn call(handler: &libc::sigaction, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let mut before = no_action().sa_mask;
    // SAFETY: The call reads the `sigset_t` of the handler and writes to one of ours. It is allowed in a signal
    // handler.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &handler.sa_mask, &mut before) };
    if handler.sa_flags & libc::SA_NODEFER != 0 {
        // `signal` is SIGBUS, because no layer is the handler of another signal.
        super::unblock(Signal::SIGBUS);
    }
    if handler.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: The code that installed the handler with SA_SIGINFO declared that it is a function of this type.
        let function = unsafe { mem::transmute::<libc::sighandler_t, Handler>(handler.sa_sigaction) };
        function(signal, info, context);
    } else {
        // SAFETY: A handler without SA_SIGINFO that is neither SIG_DFL nor SIG_IGN is a function of one argument.
        let function = unsafe { mem::transmute::<libc::sighandler_t, extern "C" fn(c_int)>(handler.sa_sigaction) };
        function(signal);
    }
    // SAFETY: The call reads a `sigset_t` of ours, which the first call has filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut()) };
}
