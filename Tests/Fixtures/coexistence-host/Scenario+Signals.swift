import CCoexistence
import Glibc
import StackCapture

extension Scenario {
    private static let usual = Int32(bitPattern: COEXIST_INFO.rawValue)

    private static func flags(_ kinds: coexist_handler...) -> Int32 {
        kinds.reduce(0) { $0 | Int32(bitPattern: $1.rawValue) }
    }

    /// Captures while the application sends its own signals to the thread, and waits for each of them.
    private static func withOwnSignals(_ trial: Trial, kind: Int32, signals: Int = 20, check: (Subject) -> Void) throws
    {
        coexist_install(SIGPROF, kind)
        let capturer = try StackCapturer.patient()
        let subject = Subject(COEXIST_SPIN)
        for round in 1...signals {
            // A handler for one signal is spent by it, and a second signal would end the process.
            trial.send(SIGPROF, to: subject, until: UInt64(round), atMost: signals == 1 ? 1 : 20)
            trial.captures(subject, capturer, times: 5, method: .signal)
        }
        trial.expect(coexist_handled() == capturer.counters.signalsPassedOn, "\(capturer.counters)")
        check(subject)
        capturer.invalidate()
    }

    /// Handlers that were installed before the capturer's.
    static let handlers: [Scenario] = [
        Scenario("handler-plain") { trial in
            try withOwnSignals(trial, kind: flags(COEXIST_PLAIN)) { _ in
                trial.expect(coexist_handler_blocked(SIGPROF), "its own signal was not blocked")
                trial.expect(!coexist_handler_blocked(SIGUSR2), "another signal was blocked")
                trial.expect(!coexist_handler_restarts(SIGPROF), "SA_RESTART, which it had not asked for")
            }
            trial.expect(coexist_handler_is_ours(SIGPROF), "it was not put back")
        },
        Scenario("handler-info") { trial in
            try withOwnSignals(trial, kind: usual) { _ in
                trial.expect(coexist_handler_had_info(), "it got no information")
            }
            trial.expect(coexist_handler_is_ours(SIGPROF), "it was not put back")
        },
        Scenario("handler-mask") { trial in
            try withOwnSignals(trial, kind: flags(COEXIST_INFO, COEXIST_MASK, COEXIST_NO_DEFER)) { _ in
                trial.expect(coexist_handler_blocked(SIGUSR2), "the signal in its mask was not blocked")
                trial.expect(!coexist_handler_blocked(SIGPROF), "its own signal was blocked, in spite of SA_NODEFER")
            }
        },
        Scenario("handler-once") { trial in
            try withOwnSignals(trial, kind: flags(COEXIST_PLAIN, COEXIST_ONCE), signals: 1) { _ in }
            trial.expect(coexist_handler_is_default(SIGPROF), "a spent handler was put back")
            let status = unsafe coexist_in_child(
                { _ in
                    coexist_install(SIGPROF, flags(COEXIST_PLAIN, COEXIST_ONCE))
                    guard let capturer = try? StackCapturer() else { return 1 }
                    coexist_send(getpid(), SIGPROF)
                    coexist_send(getpid(), SIGPROF)
                    return capturer.counters.signalsPassedOn == 2 ? 2 : 3
                },
                nil
            )
            trial.expect(status & 0x7f == SIGPROF, "the second signal did not end the process: status \(status)")
        },
        Scenario("handler-ignore") { trial in
            coexist_install(SIGPROF, flags(COEXIST_IGNORE))
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            for _ in 0..<20 {
                coexist_send(subject.threadID, SIGPROF)
                trial.captures(subject, capturer, times: 5, method: .signal)
            }
        },
        Scenario("handler-ignore-sleeper") { trial in
            coexist_install(SIGPROF, flags(COEXIST_IGNORE))
            let capturer = try StackCapturer.patient()
            let spinner = Subject(COEXIST_SPIN)
            let sleeper = Subject(COEXIST_SLEEP)
            trial.captures(sleeper, capturer, method: .quiet)
            for _ in 0..<20 {
                for _ in 0..<50 { coexist_send_and_wait(sleeper.threadID, SIGPROF) }
                trial.expect(!sleeper.hasReturned, "a signal that the application ignores cut a sleep short")
                trial.captures(spinner, capturer, times: 3, method: .signal)
                trial.expect(coexist_handler_is_ignore(SIGPROF), "the signal is not ignored between captures")
            }
            trial.expect(capturer.counters.signalsPassedOn == 0, "it was not ignored: \(capturer.counters)")
            capturer.invalidate()
            trial.expect(coexist_handler_is_ignore(SIGPROF), "the signal is not ignored at the end")
        },
        Scenario("handler-ignore-no-more") { trial in
            coexist_install(SIGPROF, flags(COEXIST_IGNORE))
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            trial.captures(subject, capturer, method: .signal)
            coexist_install(SIGPROF, usual)
            trial.send(SIGPROF, to: subject, until: 1)
            trial.captures(subject, capturer, method: .signal)
            trial.send(SIGPROF, to: subject, until: 2)
            trial.expect(capturer.counters.signalsPassedOn == 1, "\(capturer.counters)")
            capturer.invalidate()
            trial.expect(coexist_handler_is_ours(SIGPROF), "it was not put back")
        },
        Scenario("handler-default-nothing") { trial in
            // The kernel ignores SA_SIGINFO then.
            coexist_install(SIGURG, flags(COEXIST_INFO, COEXIST_DEFAULT))
            let capturer = try StackCapturer.patient(SIGURG)
            let subject = Subject(COEXIST_SPIN)
            for _ in 0..<20 {
                coexist_send(subject.threadID, SIGURG)
                trial.captures(subject, capturer, times: 5, method: .signal)
            }
        },
        Scenario("handler-default-ends") { trial in
            let status = unsafe coexist_in_child(
                { _ in
                    guard let capturer = try? StackCapturer() else { return 1 }
                    coexist_send(getpid(), SIGPROF)
                    return capturer.counters.signalsSent == 0 ? 2 : 3
                },
                nil
            )
            trial.expect(status & 0x7f == SIGPROF, "the signal did not end the process: status \(status)")
        },
        Scenario("handler-default-first") { trial in
            let result = unsafe coexist_in_first_process(
                { _ in
                    guard let capturer = try? StackCapturer() else { return 1 }
                    coexist_send(getpid(), SIGPROF)
                    return capturer.counters.signalsPassedOn == 1 && !coexist_handler_is_default(SIGPROF) ? 0 : 2
                },
                nil
            )
            if Int(result) == COEXIST_NO_NAMESPACE { return trial.skip("no namespaces here") }
            trial.expect(result == 0, "a signal without effect has removed the handler: \(result)")
        },
    ]

    /// Handlers that are installed later.
    static let covers: [Scenario] = [
        Scenario("cover-silent") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            let sleeper = Subject(COEXIST_WAIT)
            trial.captures(subject, capturer, method: .signal)
            coexist_cover(SIGPROF, false)
            let sent = capturer.counters.signalsSent
            trial.send(SIGPROF, to: subject, until: coexist_handled() + 1)
            trial.fails(subject, capturer, .signalInUse)
            trial.captures(sleeper, capturer, method: .quiet)
            trial.expect(capturer.counters.signalsSent == sent, "a signal was sent to somebody else's handler")
            coexist_uncover(SIGPROF)
            trial.captures(subject, capturer, method: .signal)
            capturer.invalidate()
            trial.expect(coexist_handler_is_default(SIGPROF), "the default was not put back")
        },
        Scenario("cover-proves-itself") { trial in
            coexist_install(SIGPROF, usual)
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            coexist_cover(SIGPROF, true)
            trial.fails(subject, capturer, .signalInUse)
            // The covering handler, and the application's handler to which ours forwards.
            trial.send(SIGPROF, to: subject, until: coexist_handled() + 2)
            trial.captures(subject, capturer, method: .signal)
            coexist_cover(SIGPROF, false)
            trial.fails(subject, capturer, .signalInUse)
        },
        Scenario("cover-outlives") { trial in
            coexist_install(SIGPROF, usual)
            let first = try StackCapturer.patient()
            coexist_cover(SIGPROF, true)
            first.invalidate()
            let subject = Subject(COEXIST_SPIN)
            let sleeper = Subject(COEXIST_WAIT)
            trial.send(SIGPROF, to: subject, until: 2)
            let second = try StackCapturer.patient()
            trial.captures(sleeper, second, method: .quiet)
            trial.fails(subject, second, .signalInUse)
            coexist_uncover(SIGPROF)
            trial.captures(subject, second, method: .signal)
            second.invalidate()
            trial.expect(coexist_handler_is_ours(SIGPROF), "the first handler was not put back")
        },
        Scenario("cover-default") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            trial.captures(subject, capturer, method: .signal)
            coexist_install(SIGPROF, 0)
            trial.fails(subject, capturer, .signalInUse)
            capturer.invalidate()
            let second = try StackCapturer.patient()
            trial.captures(subject, second, method: .signal)
        },
    ]

    /// Other senders of the signal, or threads that block it.
    static let senders: [Scenario] = [
        Scenario("profiler-before") { trial in
            coexist_install(SIGPROF, usual)
            coexist_profile(1000)
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            trial.captures(subject, capturer, times: 300, method: .signal, allowing: [.signalBlocked])
            while coexist_handled() < 10 { sched_yield() }
        },
        Scenario("profiler-after") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            let sleeper = Subject(COEXIST_WAIT)
            coexist_install(SIGPROF, usual)
            coexist_profile(1000)
            trial.fails(subject, capturer, .signalInUse)
            trial.captures(sleeper, capturer, method: .quiet)
            let handled = coexist_handled()
            while coexist_handled() < handled + 10 { sched_yield() }
        },
        Scenario("gperftools-before") { trial in
            guard coexist_gperftools(true) else { return trial.skip("libprofiler is not loaded") }
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            trial.captures(subject, capturer, times: 300, method: .signal, allowing: [.signalBlocked])
            trial.captures(Subject(COEXIST_WAIT), capturer, method: .quiet)
            while capturer.counters.signalsPassedOn < 10 { sched_yield() }
            trial.expect(coexist_gperftools(false), "its profile is empty")
        },
        Scenario("gperftools-after") { trial in
            let capturer = try StackCapturer.patient()
            guard coexist_gperftools(true) else { return trial.skip("libprofiler is not loaded") }
            let subject = Subject(COEXIST_SPIN)
            trial.captures(Subject(COEXIST_WAIT), capturer, method: .quiet)
            trial.captures(subject, capturer, times: 300, allowing: [.signalInUse], atLeast: 0)
            let began = ContinuousClock.now
            while ContinuousClock.now - began < .milliseconds(200) {}
            trial.expect(coexist_gperftools(false), "its profile is empty")
            trial.captures(subject, capturer, times: 30, allowing: [.signalInUse], atLeast: 0)
        },
        Scenario("profiler-of-the-thread") { trial in
            coexist_install(SIGPROF, usual)
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            coexist_profile_thread(subject.threadID, 200)
            trial.captures(subject, capturer, times: 300, method: .signal, allowing: [.signalBlocked])
        },
        Scenario("queue-full") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN)
            coexist_forbid_queueing()
            trial.captures(subject, capturer, times: 100, method: .signal)
            capturer.invalidate()
        },
        Scenario("masked") { trial in
            let capturer = try StackCapturer()
            let subject = Subject(COEXIST_SPIN_MASKED)
            trial.fails(subject, capturer, .signalBlocked)
            trial.expect(capturer.counters.signalsSent == 0, "a signal was sent that stays pending")
        },
        Scenario("masked-now-and-then") { trial in
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_TOGGLE_MASK)
            trial.captures(subject, capturer, times: 100, allowing: [.signalBlocked])
        },
        Scenario("sigtimedwait") { trial in
            let capturer = try StackCapturer()
            let subject = Subject(COEXIST_POLL_SIGNAL)
            trial.fails(subject, capturer, .signalBlocked, times: 10)
            subject.finish()
            trial.expect(coexist_signals_taken() == 0, "the application was given our signal")
        },
        Scenario("cancelled-asynchronously") { trial in
            // The C library's own signals would end a thread in the middle of its copy.
            let capturer = try StackCapturer.patient()
            trial.captures(Subject(COEXIST_SPIN), capturer, method: .signal)
            trial.expect(coexist_handler_blocks_all(SIGPROF), "a signal can interrupt the copy")
        },
        Scenario("real-time-signal") { trial in
            let capturer = try StackCapturer.patient(40)
            let subject = Subject(COEXIST_SPIN)
            trial.captures(subject, capturer, times: 100, method: .signal)
        },
    ]
}
