import CProcessWatch
import Glibc
import StallDiagnosis

/// Makes signals readable from a descriptor, whichever thread receives them. Create it once in a process.
package struct WatchSignals {
    /// Readable after a signal has arrived.
    package let descriptor: Int32

    /// SIGINT, SIGTERM, SIGHUP, SIGQUIT, or SIGCHLD.
    package struct Signal: Hashable, Sendable {
        package let number: Int32
        /// Whether the terminal sent it, so that our children have received it too.
        package let isFromTerminal: Bool
    }

    /// - Throws: The system's error number.
    package init() throws(StartError) {
        descriptor = process_watch_open_signals()
        if descriptor < 0 { throw StartError(errorNumber: -descriptor) }
    }

    /// The next signal, if there is one. Does not wait.
    package func take() -> Signal? {
        var signal = process_watch_signal()
        guard unsafe process_watch_take_signal(descriptor, &signal) else { return nil }
        return Signal(number: signal.number, isFromTerminal: signal.is_from_terminal)
    }
}

/// SIGTSTP, which Ctrl-Z sends. It stops all threads of this process at once. Between the moment at which a thread of another process is stopped for
/// its stack and the one at which it is released, that thread would stay stopped until this process continues. So the signal has to wait.
package enum StopSignal {
    /// From now on it stops this process only while ``ProcessWatch/wait(_:)`` waits. Call it before other threads are started.
    package static func hold() { process_watch_hold_stop() }

    /// Lets it stop this process at any moment again: at once if it has come.
    package static func release() { process_watch_release_stop() }
}

/// Why a program could not be started, or signals could not be read.
package struct StartError: Error, Hashable, CustomStringConvertible {
    package let errorNumber: Int32

    package var description: String { unsafe String(cString: strerror(errorNumber)) }
}

/// A command that this process has started as a child, to be watched.
package struct StartedCommand {
    package let processID: Int32
    /// The children that this process had before: those of the program that it replaced by execve(2). Empty if it adopts no orphans.
    let formerChildren: Set<Int32>

    /// Starts the command, which is searched in PATH. It inherits our terminal, our process group, and the signal settings that
    /// this process was started with.
    ///
    /// - Parameters:
    ///   - arguments: The bytes of the command and its arguments, which need not be UTF-8.
    ///   - adoptsOrphans: Whether its descendants become children of this process when their parents end, as a daemon's parent does.
    package init(_ arguments: [[UInt8]], adoptsOrphans: Bool = false) throws(StartError) {
        // Before the start: a daemon's parent ends at once.
        let refusal = adoptsOrphans ? process_watch_adopt_orphans() : 0
        if refusal != 0 { throw StartError(errorNumber: refusal) }
        formerChildren = adoptsOrphans ? Set(ChildProcesses.numbers(of: .own)) : []
        var pointers = unsafe arguments.map { unsafe strndup($0.map { CChar(bitPattern: $0) }, $0.count) } + [nil]
        defer { unsafe pointers.forEach { unsafe free($0) } }
        var started: pid_t = 0
        let error = unsafe process_watch_start(&pointers, &started)
        if error != 0 { throw StartError(errorNumber: error) }
        processID = started
    }

    /// Sends the signal to the command, unless the terminal has already sent it.
    package func pass(on signal: WatchSignals.Signal) {
        if signal.number != SIGCHLD, !signal.isFromTerminal { kill(processID, signal.number) }
    }

    /// The command's exit status in the form that shells use. Returned once; nil while it runs.
    package func takeStatus() -> Int32? {
        var status: Int32 = 0
        switch unsafe process_watch_take_status(processID, &status) {
        case 0: return nil
        case 1: return status
        default: return 1
        }
    }

    /// Lets all orphans go that have ended. For the time in which nobody watches them: they would stay zombies until this process ends.
    package func reapOrphans() {
        for child in ChildProcesses.numbers(of: .own) where child != processID { _ = Self.reap(child) }
    }

    /// Lets an orphan go that has ended. False if it has not, or is no child of this process.
    static func reap(_ orphan: Int32) -> Bool {
        var status: Int32 = 0
        return unsafe process_watch_take_status(orphan, &status) == 1
    }
}
