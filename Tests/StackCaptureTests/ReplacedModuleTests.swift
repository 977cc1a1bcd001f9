import CStackCapture
import Foundation
import StackCapture
import Synchronization
import Testing

extension CaptureTests {
    /// The capturing thread reads code and tables after the copy was made.
    @Suite(
        "A stack through a module that was replaced before the stack was unwound",
        .enabled(if: Plugins.canBeMade, "there is no clang to build the modules with")
    )
    struct ReplacedModuleTests {
        @Test("the new module's table is not used")
        func replaced() throws {
            let plugins = try #require(try Plugins())
            // The kernel puts a module into the highest gap that is large enough. Any other thread's mapping may come into this one
            // before the successor does, or leave a higher one: then the next two modules have another gap.
            for _ in 0..<20 {
                let sleeper = try PluginSleeper(plugins.path(0))
                let copy = try Copy(of: sleeper.identity, in: "read")
                sleeper.finish()
                let successor = try LoadedPlugin(plugins.path(3))
                if successor.wait == sleeper.wait { return try expectMarked(copy, of: sleeper, beside: successor) }
            }
            Issue.record("the loader has put it to another place each time")
        }

        private func expectMarked(_ copy: Copy, of sleeper: PluginSleeper, beside successor: LoadedPlugin) throws {
            defer { withExtendedLifetime(successor) {} }
            let unwound = try copy.unwind()
            #expect(unwound.isUnsettled)
            // Marked as a guess: a sleeping thread's frame pointer is searched for.
            let caller = try unwound.caller(of: sleeper)
            let isMarked = [STACKCAP_FOUND_FRAME_POINTER, STACKCAP_FOUND_SCAN].contains(caller?.found)
            #expect(caller == nil ? unwound.end == STACKCAP_END_NO_TABLE : isMarked)
        }

        @Test("it is complete if nothing was loaded meanwhile")
        func same() throws {
            let plugins = try #require(try Plugins())
            let sleeper = try PluginSleeper(plugins.path(1))
            defer { sleeper.finish() }
            let unwound = try Copy(of: sleeper.identity, in: "read").unwind()
            #expect(!unwound.isUnsettled && unwound.end == STACKCAP_END_COMPLETE)
            #expect(try unwound.caller(of: sleeper)?.found == STACKCAP_FOUND_TABLE)
        }

        @Test("it is complete if its modules cannot be unloaded, whatever was loaded meanwhile")
        func lasting() throws {
            let plugins = try #require(try Plugins())
            let worker = WaitingWorker(.group)
            defer { worker.finish() }
            let copy = try Copy(of: worker.identity)
            let other = try LoadedPlugin(plugins.path(2))
            let unwound = try copy.unwind()
            #expect(!unwound.isUnsettled && unwound.end == STACKCAP_END_COMPLETE, "\(other.wait)")
        }
    }
}

/// A module of ``Plugins``, loaded as long as this object lives.
@safe private final class LoadedPlugin: Sendable {
    typealias Wait = @convention(c) (Int32) -> Int32

    /// Safe: only closed, once.
    nonisolated(unsafe) private let handle: UnsafeMutableRawPointer
    /// The address of `plugin_wait`.
    let wait: UInt

    init(_ path: String) throws {
        unsafe handle = try #require(unsafe dlopen(path, RTLD_NOW | RTLD_LOCAL))
        wait = UInt(bitPattern: unsafe dlsym(handle, "plugin_wait"))
        try #require(wait != 0)
    }

    deinit { unsafe dlclose(handle) }

    /// Waits in the module until there is something to read.
    func waitInside(_ file: Int32) -> Int32 {
        unsafe unsafeBitCast(UnsafeRawPointer(bitPattern: wait), to: Wait.self)(file)
    }
}

/// A thread that waits in a function of a module, and unloads the module when it is released.
private final class PluginSleeper: Sendable {
    let identity: ThreadIdentity
    /// The address of the function.
    let wait: UInt
    private let pipe = Pipe()
    private let ended = DispatchSemaphore(value: 0)

    init(_ path: String) throws {
        let arrival = Arrival()
        let (file, ended) = (pipe.fileHandleForReading.fileDescriptor, ended)
        Thread.detachNewThread {
            Self.visit(path, file, arrival)
            ended.signal()
        }
        var seen: (ThreadIdentity, UInt)?
        while seen == nil { seen = arrival.seen.withLock { $0 } }
        (identity, wait) = try #require(seen)
    }

    /// Returns when the module is unloaded.
    func finish() {
        try? pipe.fileHandleForWriting.write(contentsOf: [0])
        ended.wait()
    }

    private static func visit(_ path: String, _ file: Int32, _ arrival: Arrival) {
        guard let plugin = try? LoadedPlugin(path) else { fatalError("\(path) cannot be loaded") }
        guard let identity = ThreadIdentity.current() else { fatalError("a thread does not know itself") }
        arrival.seen.withLock { $0 = (identity, plugin.wait) }
        _ = plugin.waitInside(file)
    }

    private final class Arrival: Sendable {
        let seen = Mutex<(ThreadIdentity, UInt)?>(nil)
    }
}

/// A copy of a sleeping thread's stack that was not unwound yet.
@safe private final class Copy {
    private let session: OpaquePointer

    /// Waits until the thread has entered its call.
    init(of thread: ThreadIdentity, in call: String = "futex") throws {
        var opened: OpaquePointer?
        let outcome = unsafe stackcap_open(SIGVTALRM, false, &opened)
        try #require(outcome.status == STACKCAP_OK)
        unsafe session = try #require(unsafe opened)
        let (low, high) = (UInt64(thread.stack.lowerBound), UInt64(thread.stack.upperBound))
        var look = stackcap_look()
        while true {
            unsafe stackcap_look_at(thread.threadID, &look)
            guard look.state == STACKCAP_STATE_CALLING, SystemCall(number: Int(look.call), arguments: []).name == call
            else {
                continue
            }
            let copied = unsafe stackcap_copy_blocked(session, thread.threadID, low, high, &look)
            if copied.status == STACKCAP_OK { return }
        }
    }

    deinit { unsafe stackcap_close(session) }

    struct Unwound {
        let frames: [stackcap_frame]
        let end: stackcap_end
        let isUnsettled: Bool

        /// The frame after the module's function. Nil if the stack ends there.
        func caller(of sleeper: PluginSleeper) throws -> stackcap_frame? {
            let function = sleeper.wait..<sleeper.wait + 256
            let inside = try #require(frames.firstIndex { function.contains(UInt($0.address)) })
            return frames.dropFirst(inside + 1).first
        }
    }

    func unwind() throws -> Unwound {
        var unwound = unsafe stackcap_unwound()
        try #require(unsafe stackcap_unwind(session, &unwound).status == STACKCAP_OK)
        let frames = unsafe Array(UnsafeBufferPointer(start: unwound.frames, count: unwound.count))
        return unsafe Unwound(frames: frames, end: unwound.end, isUnsettled: unwound.is_unsettled)
    }
}
