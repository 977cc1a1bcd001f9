import CCoexistence
import Glibc
import StackCapture

extension Scenario {
    static func both(_ trial: Trial, _ capturer: StackCapturer) {
        trial.captures(Subject(COEXIST_SPIN), capturer, method: .signal)
        trial.captures(Subject(COEXIST_WAIT), capturer, method: .quiet)
    }

    static func forbid(_ trial: Trial, _ call: Int32, _ action: Int32, everywhere: Bool = true) -> Bool {
        let works = coexist_forbid(call, action, everywhere)
        if !works { trial.skip("no seccomp here") }
        return works
    }

    private static let error = Int32(COEXIST_ERROR)
    private static let trap = Int32(COEXIST_TRAP)
    private static let kill = Int32(COEXIST_KILL)

    static let sandboxes: [Scenario] = [
        Scenario("seccomp-error") { trial in
            guard forbid(trial, coexist_call_process_vm_readv, error) else { return }
            both(trial, try StackCapturer.patient())
        },
        Scenario("seccomp-trap") { trial in
            guard forbid(trial, coexist_call_process_vm_readv, trap) else { return }
            both(trial, try StackCapturer.patient())
        },
        Scenario("seccomp-kill") { trial in
            guard forbid(trial, coexist_call_process_vm_readv, kill) else { return }
            both(trial, try StackCapturer.patient())
        },
        Scenario("seccomp-kill-later") { trial in
            let capturer = try StackCapturer.patient()
            both(trial, capturer)
            guard forbid(trial, coexist_call_process_vm_readv, kill) else { return }
            usleep(20_000)
            both(trial, capturer)
        },
        Scenario("seccomp-one-thread") { trial in
            let capturer = try StackCapturer.patient()
            trial.captures(Subject(COEXIST_SPIN_SANDBOXED), capturer, method: .signal)
            both(trial, capturer)
        },
        Scenario("seccomp-strict") { trial in
            guard coexist_has_strict_mode() else { return trial.skip("there is a filter already") }
            let capturer = try StackCapturer.patient()
            let subject = Subject(COEXIST_SPIN_STRICT)
            trial.fails(subject, capturer, .accessRefused)
            let rounds = subject.rounds
            while subject.rounds == rounds { sched_yield() }  // it lives
            both(trial, capturer)
        },
        Scenario("seccomp-cancelled") { trial in
            // Memory is read through a file, and a thread that was cancelled must not end before its next cancellation point.
            guard forbid(trial, coexist_call_process_vm_readv, error) else { return }
            let capturer = try StackCapturer.patient()
            trial.captures(Subject(COEXIST_SPIN_CANCELLED), capturer, method: .signal)
            both(trial, capturer)
        },
        Scenario("seccomp-no-signal") { trial in
            let capturer = try StackCapturer.patient()
            guard forbid(trial, coexist_call_rt_tgsigqueueinfo, error) else { return }
            trial.fails(Subject(COEXIST_SPIN), capturer, .systemCallFailed)
            trial.captures(Subject(COEXIST_WAIT), capturer, method: .quiet)
        },
        Scenario("descriptors-replaced") { trial in
            guard forbid(trial, coexist_call_process_vm_readv, error) else { return }
            let capturer = try StackCapturer.patient()
            both(trial, capturer)
            coexist_replace_descriptors()
            both(trial, capturer)
            capturer.invalidate()
        },
        Scenario("not-dumpable") { trial in
            guard coexist_drop_rights() else { return trial.skip("needs root") }
            let capturer = try StackCapturer.patient()
            trial.fails(Subject(COEXIST_SPIN), capturer, .stateUnreadable)
            trial.fails(Subject(COEXIST_WAIT), capturer, .stateUnreadable)
        },
        Scenario("dumpable-again") { trial in
            let capturer = try StackCapturer.patient()
            guard coexist_drop_rights() else { return trial.skip("needs root") }
            let (spinner, waiter) = (Subject(COEXIST_SPIN), Subject(COEXIST_WAIT))
            guard case .failure(let error) = trial.capture(spinner, capturer) else {
                return trial.complain("a capture succeeded")
            }
            trial.expect(error.description.contains("call prctl(PR_SET_DUMPABLE, 1)"), error.description)
            trial.expect(coexist_be_dumpable(), "PR_SET_DUMPABLE is refused")
            trial.captures(spinner, capturer, method: .signal)
            trial.captures(waiter, capturer, method: .quiet)
        },
        Scenario("not-dumpable-seccomp") { trial in
            guard coexist_drop_rights() else { return trial.skip("needs root") }
            guard forbid(trial, coexist_call_process_vm_readv, error) else { return }
            do throws(CaptureError) {
                _ = try StackCapturer.patient()
                trial.complain("memory can be read in no way, and nothing was said")
            } catch {
                trial.expect(error.code == .memoryUnreadable, error.description)
            }
        },
    ]

    static let exceptions: [Scenario] = [
        Scenario("exceptions-binding") { trial in
            let (status, text) = Child.run(["throw"], environment: "LD_DEBUG=bindings")
            trial.expect(status == 0, "it ended with wait status \(status)")
            let bindings = text.split(separator: "\n").filter { $0.contains("`_Unwind_") }
            for binding in bindings {
                let files = binding.split(separator: " ").filter { $0.contains("/") || $0.contains("coexistence-host") }
                guard let from = files.first, !from.contains("libunwind") else { continue }
                trial.expect(files.count == 2 && !files[1].contains("libunwind"), String(binding.suffix(160)))
            }
            trial.expect(!bindings.isEmpty, "the dynamic linker said nothing")
            trial.note("\(bindings.count) bindings of _Unwind_*")
        },
        Scenario("exceptions-while-captured") { trial in
            let before = coexist_throw(2000)
            let capturer = try StackCapturer.patient()
            let after = coexist_throw(2000)
            trial.captures(Subject(COEXIST_SPIN), capturer, method: .signal)
            trial.expect(before > 0 && after > 0, "an exception was not caught")
            trial.note("\(before) ns a throw without a capturer, \(after) ns with one")
        },
    ]
}
