import CRunLoopShims
import Glibc
import RunLoopKit
import Synchronization

let requestHasBegun = Atomic<Bool>(false)
let requestMayEnd = Atomic<Bool>(false)

/// R64: the frame of a perform request, and of a thread that waits for one; a signal does not end that wait.
func requestFrames() {
    EventRunLoop.main.performAsSource { say("request: \(loopFrame())") }
    EventRunLoop.main.run(for: .zero)
    do {
        let worker = try WorkerThread(name: "frames")
        signal(SIGALRM) { _ in
            let hasBegun = requestHasBegun.load(ordering: .acquiring)
            guard isThere("event_run_loop_wait_for_a_perform_request", hasBegun) else { return }
            say("wait for a request: \(loopFrame())")
            requestMayEnd.store(true, ordering: .releasing)
        }
        alarm(1)
        let value = try worker.loop.performAndWait {
            requestHasBegun.store(true, ordering: .releasing)
            while !requestMayEnd.load(ordering: .acquiring) { usleep(1000) }
            return "done"
        }
        say(value)
        worker.stop()
        worker.join()
    } catch {
        say("\(error)")
    }
}

/// Without address space for a stack no worker starts; when it is available again, one does.
func noThreads() {
    var before = rlimit()
    unsafe getrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &before)
    var none = rlimit(rlim_cur: 1, rlim_max: before.rlim_max)
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &none)
    let refusal = Result { () throws(RunLoopError) in try WorkerThread(name: "refused") }
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &before)
    switch refusal {
    case .success: say("started")
    case .failure(let error): say("refused: \(error.code == .threadNotStarted) \(error.errno == EAGAIN)")
    }
    do {
        let worker = try WorkerThread(name: "started")
        say(try worker.loop.performAndWait { EventRunLoop.current.label })
    } catch {
        say("\(error)")
    }
}

/// The descriptors and threads that remain of workers that were used, and stopped in each way.
func workers() {
    // A sanitizer has its own thread, which is started together with our first one, and remains.
    let first = try? WorkerThread(name: "first")
    let id = first?.loop.thread?.id ?? 0
    first?.stop()
    first?.join()
    // The kernel lists a thread for a moment after it was joined.
    while unsafe access("/proc/self/task/\(id)", F_OK) == 0 { sched_yield() }
    let threads = threadCount()
    burst(ofWorkersOver: threads)
    let descriptors = openDescriptors()
    for _ in 0..<20 { burst(ofWorkersOver: threads) }
    say("left behind: \(openDescriptors() - descriptors) descriptors, \(threadCount() - threads) threads")
}

func workerStack() {
    guard let worker = try? WorkerThread(name: "small") else { return say("not started") }
    let room = try? worker.loop.performAndWait { EventRunLoop.current.thread?.stack.count ?? 0 }
    worker.stop()
    // The guard page and thread-local variables reduce it.
    say("room: \(room ?? 0 > 900 << 10)")
}

func burst(ofWorkersOver threads: Int) {
    for number in 0..<20 {
        guard let worker = try? WorkerThread(name: "worker \(number)") else { return say("not started") }
        worker.loop.perform(after: .seconds(60)) { say("never") }
        worker.loop.performBeforeWaiting("work") { usleep(1) }
        _ = try? worker.loop.performAndWait { getpid() }
        guard number % 2 == 0 else { continue }  // released without a join
        worker.stop(draining: number % 4 == 0)
        worker.join()
    }
    // The released ones end automatically.
    for _ in 0..<20_000 where threadCount() > threads { usleep(1000) }
}

func threadCount() -> Int {
    guard let directory = unsafe opendir("/proc/self/task") else { return -1 }
    defer { unsafe closedir(directory) }
    var count = -2
    while unsafe readdir(directory) != nil { count += 1 }
    return count
}
