import CCoexistence
import Glibc
import StackCapture
import Synchronization

extension Scenario {
    /// Threads that are not on their own stack.
    static let stacks: [Scenario] = [
        Scenario("alternate-stack-running") { trial in
            let capturer = try StackCapturer.patient()
            trial.captures(Subject(COEXIST_SPIN_ON_ALTERNATE_STACK), capturer, method: .signal)
        },
        Scenario("alternate-stack-blocked") { trial in
            let capturer = try StackCapturer.patient()
            trial.captures(Subject(COEXIST_WAIT_ON_ALTERNATE_STACK), capturer, method: .quiet)
        },
        Scenario("alternate-stack-nested") { trial in
            let capturer = try StackCapturer.patient()
            trial.captures(Subject(COEXIST_SPIN_NESTED), capturer, method: .signal)
        },
        Scenario("alternate-stack-deep") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN_DEEP_BELOW_ALTERNATE)
            var successes = 0
            for _ in 0..<30 {
                guard case .success(let stack) = trial.capture(subject, capturer) else { continue }
                successes += 1
                trial.expect(stack.truncation == .copyLimit, "\(stack.truncation.map { "\($0)" } ?? "none")")
                trial.expect(stack.frames.count > 3, "\(stack.frames.count) frames")
            }
            trial.expect(successes > 0, "no capture succeeded")
        },
        Scenario("coroutine-running") { trial in
            let capturer = try StackCapturer.patient()
            trial.captures(Subject(COEXIST_SPIN_ON_COROUTINE), capturer, method: .signal, isComplete: nil)
        },
        Scenario("coroutine-blocked") { trial in
            let capturer = try StackCapturer.patient()
            trial.captures(Subject(COEXIST_WAIT_ON_COROUTINE), capturer, method: .quiet, isComplete: nil)
        },
        Scenario("coroutines-switching") { trial in
            let capturer = try StackCapturer.patient()
            trial.captures(Subject(COEXIST_SWITCH_COROUTINES), capturer, times: 300, isComplete: nil)
        },
    ]

    /// Unusual waits in the kernel.
    static let waits: [Scenario] = [
        Scenario("vfork") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_VFORK)
            trial.captures(subject, capturer, times: 200, method: .quiet)
            trial.expect(!subject.hasReturned, "vfork returned early")
            subject.finish()
            trial.expect(subject.hasReturned, "vfork did not return")
        },
        Scenario("posix-spawn") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_POSIX_SPAWN)
            usleep(20_000)
            trial.captures(subject, capturer, times: 200, method: .quiet)
            trial.expect(!subject.hasReturned, "posix_spawn returned early")
            subject.finish()
            trial.expect(subject.hasReturned, "posix_spawn did not return")
        },
        Scenario("io-uring-wait") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_URING_WAIT)
            // Without io_uring it ends.
            var seen = StackCapturer.sighting(ofThread: subject.threadID)
            while let sighting = seen, sighting.systemCall?.name != "io_uring_enter" {
                usleep(1000)
                seen = StackCapturer.sighting(ofThread: subject.threadID)
            }
            guard seen != nil else { return trial.skip("no io_uring here") }
            trial.captures(subject, capturer, times: 200, method: .quiet)
            trial.expect(!subject.hasReturned, "io_uring_enter returned early")
        },
        Scenario("io-uring-poller") { trial in
            let capturer = try StackCapturer()
            let poller = coexist_uring_poller()
            if poller == 0 { return trial.skip("no io_uring here") }
            // While it polls it is running, with every signal blocked.
            for _ in 0..<10 {
                switch capturer.capture(threadID: poller, stack: 0..<0) {
                case .success: trial.complain("a thread of the kernel has no stack of ours")
                case .failure(let error):
                    let allowed = Trial.noise.union([.kernelThread, .signalBlocked])
                    trial.expect(allowed.contains(error.code), error.description)
                }
            }
            trial.expect(capturer.counters.signalsSent == 0, "a signal was sent to a thread of the kernel")
        },
    ]

    /// Threads and processes that begin, end or stop.
    static let lives: [Scenario] = [
        Scenario("thread-exits") { trial in
            let capturer = try StackCapturer.patient()
            for _ in 0..<500 {
                let subject = Subject(COEXIST_EXIT_SOON)
                let result = trial.capture(subject, capturer)
                subject.finish()
                guard case .failure(let error) = result else { continue }
                // The C library blocks all signals of a thread that is about to end.
                let expected: Set<CaptureError.Code> = [
                    .threadGone, .stackOutOfBounds, .memoryUnreadable, .signalBlocked,
                ]
                trial.expect(expected.union(Trial.noise).contains(error.code), error.description)
            }
        },
        Scenario("thread-traced") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            let sleeper = Subject(COEXIST_WAIT)
            guard coexist_trace(subject.threadID) else { return trial.skip("no ptrace here") }
            trial.captures(subject, capturer, method: .quiet)
            trial.captures(sleeper, capturer, method: .quiet)
        },
        Scenario("process-stopped") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            let stopper = coexist_stop_now_and_then()
            trial.captures(subject, capturer, times: 200)
            coexist_stop_no_more(stopper)
        },
        Scenario("first-thread-ended") { trial in
            let early = try StackCapturer.patient()
            afterFirstThread(trial, "first-thread-ended") {
                both(trial, early)
                if case .failure(let error) = early.captureAll() { trial.complain(error.description) }
                early.invalidate()
                both(trial, try StackCapturer.patient())
            }
        },
        Scenario("first-thread-ended-file") { trial in
            guard forbid(trial, coexist_call_process_vm_readv, Int32(COEXIST_ERROR)) else { return }
            afterFirstThread(trial, "first-thread-ended-file") { both(trial, try StackCapturer.patient()) }
        },
        Scenario("fork-child") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            trial.captures(subject, capturer, method: .signal)
            Forks.capturer.withLock { $0 = capturer }
            for _ in 0..<20 {
                let status = unsafe coexist_in_child({ _ in Forks.checkChild() }, nil)
                trial.expect(status == 0, "in the child: status \(status)")
            }
            trial.captures(subject, capturer, method: .signal)
        },
        Scenario("fork-in-mid-capture") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            let (number, stack) = (subject.threadID, subject.stack)
            Forks.capturer.withLock { $0 = capturer }
            // Swift creates the metadata of generic types on first use, under a lock that a fork's child may inherit locked.
            trial.captures(subject, capturer)
            Background.forever { _ = capturer.capture(threadID: number, stack: stack) }
            for _ in 0..<50 {
                let status = unsafe coexist_in_child({ _ in Forks.checkChild() }, nil)
                trial.expect(status == 0, "in the child: status \(status)")
            }
        },
        Scenario("fork-beside-sampler") { trial in
            var sleeper = pid_t()
            var arguments: [UnsafeMutablePointer<CChar>?] = unsafe [strdup("sleep"), strdup("600"), nil]
            guard unsafe posix_spawn(&sleeper, "/bin/sleep", nil, nil, &arguments, environ) == 0 else {
                return trial.expect(false, "no process to sample")
            }
            defer { kill(sleeper, SIGKILL) }
            let sampler = try ProcessSampler(processID: sleeper)
            Forks.sampler.withLock { $0 = sampler }
            let number = sleeper
            // As above.
            _ = (sampler.capture(threadID: number), try sampler.threads(), sampler.cost, sampler.programsRun)
            // Its lock is nearly always held.
            Background.forever { _ = sampler.capture(threadID: number) }
            for _ in 0..<50 {
                let status = unsafe coexist_in_child({ _ in Forks.checkChildsSampler() }, nil)
                trial.expect(status == 0, "in the child: status \(status)")
                if status != 0 { break }
            }
            trial.expect((try? sampler.threads())?.count == 1, "the sampler no longer works")
        },
        Scenario("late-signals") { trial in
            // They share one processor: many handlers run after their
            // request was withdrawn, or after the capturer made another one.
            let subjects = (0..<3).map { _ in Subject(COEXIST_SPIN_PINNED) }
            var late: UInt64 = 0
            for round in 0..<400 {
                let capturer = try StackCapturer(deadline: .microseconds(1000 + round % 10 * 500))
                trial.captures(subjects[round % 3], capturer, times: 1, method: .signal, atLeast: 0)
                capturer.invalidate()
                late = capturer.counters.lateSignals
            }
            trial.note("\(late) signals were late")
            trial.expect(coexist_handler_is_default(SIGPROF), "the default was not put back")
            trial.captures(subjects[0], try StackCapturer(deadline: .seconds(5)))
        },
    ]

    /// Ends the process's first thread, and plays the rest of a scenario on another one, which ends the process.
    private static func afterFirstThread(_ trial: Trial, _ name: String, _ rest: @escaping () throws -> Void) -> Never {
        let act = Act {
            // The process's number leads to its program as long as its first thread lives.
            var byte: CChar = 0
            while unsafe readlink("/proc/self/exe", &byte, 1) > 0 { sched_yield() }
            do { try rest() } catch { trial.complain("threw \(error)") }
            print(trial.line(for: name))
            exit(trial.hasFailed ? 1 : 0)
        }
        var thread = pthread_t()
        let context = unsafe Unmanaged.passRetained(act).toOpaque()
        let error = unsafe pthread_create(
            &thread,
            nil,
            { context in unsafe Unmanaged<Act>.fromOpaque(context!).takeRetainedValue().play() },
            context
        )
        precondition(error == 0, "the machine has no thread")
        pthread_exit(nil)
    }
}

/// What another thread plays, while the one that made it has ended.
private final class Act {
    let play: () -> Never

    init(_ play: @escaping () -> Never) { self.play = play }
}

/// Checks the parent's capturer, or its sampler, in a fork's child.
enum Forks {
    static let capturer = Mutex<StackCapturer?>(nil)
    static let sampler = Mutex<ProcessSampler?>(nil)

    /// Called in the child. Returns 0 on success.
    static func checkChildsSampler() -> Int32 {
        guard let inherited = sampler.withLock({ $0.take() }) else { return 1 }
        guard case .failure(let error) = inherited.capture(threadID: inherited.processID), error.code == .forked else {
            return 2
        }
        do throws(CaptureError) {
            _ = try inherited.threads()
            return 3
        } catch {
            guard error.code == .forked else { return 4 }
        }
        return inherited.cost.stops == 0 && inherited.programsRun == 0 ? 0 : 5
    }

    /// Called in the child. Returns 0 on success.
    static func checkChild() -> Int32 {
        let subject = Subject(COEXIST_SPIN)
        let inherited = capturer.withLock { $0 }
        guard case .failure(let error) = inherited?.capture(threadID: subject.threadID, stack: subject.stack),
            error.code == .forked
        else { return 1 }
        guard case .failure(let error) = inherited?.captureAll(), error.code == .forked else { return 5 }
        inherited?.invalidate()
        guard let own = try? StackCapturer(deadline: .seconds(5)) else { return 2 }
        guard case .success(let stack) = own.capture(threadID: subject.threadID, stack: subject.stack) else { return 3 }
        return stack.isComplete && stack.method == .signal ? 0 : 4
    }
}
