import CProcessWatch
import Glibc

/// Turns signals into data that can be read from a descriptor, whichever thread they come to. Once in a process.
package struct WatchSignals {
    /// Readable when a signal has come.
    package let descriptor: Int32

    /// SIGINT, SIGTERM, SIGHUP, or SIGCHLD.
    package struct Signal: Hashable, Sendable {
        package let number: Int32
        /// The terminal has sent it to our children too.
        package let isFromTerminal: Bool
    }

    /// - Throws: the system's error number.
    package init() throws(StartError) {
        descriptor = process_watch_open_signals()
        if descriptor < 0 { throw StartError(errorNumber: -descriptor) }
    }

    /// The next one. Does not wait.
    package func take() -> Signal? {
        var signal = process_watch_signal()
        guard unsafe process_watch_take_signal(descriptor, &signal) else { return nil }
        return Signal(number: signal.number, isFromTerminal: signal.is_from_terminal)
    }
}

/// Why a program could not be started, or signals could not be read.
package struct StartError: Error, Hashable, CustomStringConvertible {
    package let errorNumber: Int32

    package var description: String { unsafe String(cString: strerror(errorNumber)) }
}

/// A command that this process has started as a child, to be watched.
package struct StartedCommand {
    package let processID: Int32

    /// Starts the command, found in PATH. It gets our terminal, our process group, and the signal settings with which we were started.
    package init(_ arguments: [String]) throws(StartError) {
        var pointers = unsafe arguments.map { unsafe strdup($0) } + [nil]
        defer { unsafe pointers.forEach { unsafe free($0) } }
        var started: pid_t = 0
        let error = unsafe process_watch_start(&pointers, &started)
        if error != 0 { throw StartError(errorNumber: error) }
        processID = started
    }

    /// Sends the signal to the command, unless it has had it from the terminal.
    package func pass(on signal: WatchSignals.Signal) {
        if signal.number != SIGCHLD, !signal.isFromTerminal { kill(processID, signal.number) }
    }

    /// The command's exit status in the form that shells use, once. Nil while it runs.
    package func takeStatus() -> Int32? {
        var status: Int32 = 0
        switch unsafe process_watch_take_status(processID, &status) {
        case 0: return nil
        case 1: return status
        default: return 1
        }
    }
}
