import StallReports

extension Advice {
    private static let waits: [Verdict] = [.waiting, .diskWait, .deadlock]
    /// All but those whose reason is outside the process: what the thread was at then says nothing of that.
    private static let ownReasons: [Verdict] = waits + [.onCPU, .unknown]

    /// In the order in which they are tried.
    package static let rules: [Rule] = [
        Rule(
            name: "sqlite_busy",
            verdicts: waits,
            functions: ["sqliteDefaultBusyCallback", "btreeInvokeBusyHandler", "sqlite3InvokeBusyHandler"],
            sleepers: ["libsqlite3"],
            likely: "SQLite's busy handler sleeps here until another connection releases the database.",
            remedy:
                "Use the database on a thread of its own, keep write transactions short, and turn on write-ahead logging (PRAGMA journal_mode=WAL)."
        ),
        Rule(
            name: "wait_until_exit",
            verdicts: ownReasons,
            functions: ["waitUntilExit"],
            likely: "Process.waitUntilExit() keeps the thread until the child process ends.",
            remedy: "Use terminationHandler, or await the child with swift-subprocess; give it a time limit."
        ),
        Rule(
            name: "node_child",
            verdicts: waits,
            functions: ["node::SyncProcessRunner"],
            likely: "execSync, execFileSync or spawnSync of node keeps the loop until the child process ends.",
            remedy: "Use exec, execFile or spawn, and give the child a time limit."
        ),
        Rule(
            name: "node_file",
            verdicts: waits,
            // On the loop's thread: what has a callback or a promise runs on another one.
            functions: ["node::fs::"],
            likely: "A synchronous function of node's fs, such as readFileSync, waits for a file.",
            remedy: "Use the function of fs.promises, or the one with a callback."
        ),
        Rule(
            name: "python_lock",
            verdicts: waits,
            functions: ["take_gil"],
            likely:
                "Another thread keeps Python's global lock (GIL): it is in a function written in C that does not release it, such as a regular expression.",
            remedy:
                "Do that thread's work in another process. 'stall-monitor sample PID --all' shows what the threads do while it lasts."
        ),
        Rule(
            name: "java_monitor",
            verdicts: waits,
            functions: ["ObjectMonitor::enter", "ObjectMonitor::EnterI"],
            likely: "Java code waits for a synchronized block or method that another thread is in.",
            remedy:
                "Keep slow work out of the block. 'jcmd PID Thread.print' shows, while it lasts, which thread holds the monitor."
        ),
        Rule(
            name: "java_sleep",
            verdicts: waits,
            functions: ["JVM_Sleep"],
            likely: "The thread sleeps on purpose: Thread.sleep.",
            remedy: "Use a timer of the loop, or a scheduled executor."
        ),
        Rule(
            name: "java_park",
            verdicts: waits,
            functions: ["Unsafe_Park"],
            likely: "Java code waits for a lock, a future or a queue of java.util.concurrent.",
            remedy:
                "Go on when the result comes, and do not wait for it. 'jcmd PID Thread.print' shows, while it lasts, what the thread waits for."
        ),
        Rule(
            name: "child",
            verdicts: waits,
            calls: ["wait4", "waitid"],
            likely: "The thread waits for a child process to end.",
            remedy: "Wait for it on a thread of its own, or be told of its end by a pidfd or SIGCHLD."
        ),
        Rule(
            name: "fsync",
            verdicts: ownReasons,
            calls: ["fsync", "fdatasync", "msync", "sync", "syncfs", "sync_file_range"],
            likely: "The thread waits until its data is on the disk.",
            remedy: "Sync on a thread of its own, and less often: one sync for several writes."
        ),
        Rule(
            name: "dns",
            verdicts: waits,
            functions: [
                "getaddrinfo", "gethostbyname", "gethostbyaddr", "getnameinfo", "__res_context_query", "res_nquery",
            ],
            likely: "A host name is looked up, and the name server has not answered yet.",
            remedy:
                "Resolve names asynchronously, or on a thread of its own; keep connections open; look at /etc/resolv.conf (timeout, attempts)."
        ),
        Rule(
            name: "semaphore_over_async",
            verdicts: waits,
            functions: ["DispatchSemaphore.wait", "dispatch_semaphore_wait", "_dispatch_semaphore_wait_slow"],
            likely:
                "The thread waits for a DispatchSemaphore. If a Task is to signal it, that Task may need this very thread.",
            remedy:
                "Make the caller async and await the result; a semaphore must not bridge to async code on a loop's or task's thread."
        ),
        Rule(
            name: "semaphore",
            verdicts: waits,
            locks: [.dispatchSemaphore, .semaphore],
            likely: "The thread waits for a semaphore. It has no owner: whoever is to signal it has not done so.",
            remedy: "Look for who signals it; await the result in its place."
        ),
        Rule(
            name: "group",
            verdicts: waits,
            locks: [.dispatchGroup],
            likely: "The thread waits until a DispatchGroup is empty.",
            remedy: "Use notify(queue:), or a task group."
        ),
        Rule(
            name: "queue_sync",
            verdicts: waits,
            locks: [.dispatchQueue],
            likely: "DispatchQueue.sync waits for what runs on that queue.",
            remedy:
                "Use async and a continuation, or shorten what stands before it on the queue: its stack is shown where the owner is known."
        ),
        Rule(
            name: "decoding",
            verdicts: [.onCPU],
            functions: [
                "JSONDecoder", "JSONEncoder", "JSONSerialization", "PropertyListDecoder", "JSONDecoderImpl",
                "JSONScanner",
            ],
            likely: "Most of the time goes into encoding or decoding a document.",
            remedy: "Do it off the loop, on another thread or in another process; limit the size of what is accepted.",
            swiftRemedy:
                "Do it off the loop: in a nonisolated async function (@concurrent), a detached task, or a queue; limit the size of what is accepted."
        ),
        Rule(
            name: "regex",
            verdicts: [.onCPU],
            functions: [
                "_StringProcessing", "NSRegularExpression", "uregex_", "v8::internal::RegExpImpl", "sre_ucs",
                "regex_automata::", "std::__detail::__regex",
            ],
            likely: "Most of the time goes into matching a regular expression.",
            remedy: "Limit the length of the input, and look for nested repetitions: they can take exponential time."
        ),
        Rule(
            name: "file_lock",
            verdicts: waits,
            calls: ["flock", "fcntl"],
            likely: "The thread waits for a file lock that another process, or another descriptor, holds.",
            remedy: "Take it on a thread of its own, or without waiting (LOCK_NB, F_SETLK), and try again later."
        ),
        Rule(
            name: "sleep",
            verdicts: waits,
            calls: ["nanosleep", "clock_nanosleep"],
            likely: "The thread sleeps on purpose: sleep, usleep, Thread.sleep or a poll of something.",
            remedy: "Use a timer of the loop, or a sleep that is awaited.",
            swiftRemedy: "Use Task.sleep or a timer of the loop."
        ),
        Rule(
            name: "socket",
            verdicts: waits,
            descriptors: [.socket],
            likely: "The thread waits for a peer in a blocking call on a socket.",
            remedy: "Use a non-blocking client, and set a time limit.",
            swiftRemedy: "Use a non-blocking client (SwiftNIO, URLSession's async calls), and set a time limit."
        ),
        Rule(
            name: "pipe",
            verdicts: waits,
            descriptors: [.pipe],
            likely: "The thread waits for the other end of a pipe.",
            remedy: "Make the pipe non-blocking and wait for it in the loop, or read it on a thread of its own."
        ),
        Rule(
            name: "deadlock",
            verdicts: [.deadlock],
            likely: "The threads wait for each other, all around: none goes on by itself.",
            remedy:
                "Take these locks in one order everywhere, or call out only after releasing the first. The process must be restarted, unless a wait has a time limit."
        ),
        Rule(
            name: "thread_end",
            verdicts: [.waiting],
            locks: [.threadJoin, .workerEnd],
            likely: "The thread waits for another thread to end.",
            remedy: "Join that thread on a thread of its own, or let it tell the loop when it is done."
        ),
        Rule(
            name: "other_loop",
            verdicts: [.waiting],
            locks: [.loopRequest, .portReply, .portRoom],
            likely: "The thread waits for the loop of another thread, which has not served it yet.",
            remedy: "Send without waiting, and go on when the answer comes; look at what the other loop does meanwhile."
        ),
        Rule(
            name: "lock_owner",
            verdicts: [.waiting],
            hasOwner: true,
            likely: "Another thread holds the lock that this one needs.",
            remedy: "Look at the owner's stack: do its slow work before taking the lock or after releasing it."
        ),
        Rule(
            name: "throttled",
            verdicts: [.starved],
            isThrottled: true,
            likely: "The container's CPU limit held the process back.",
            remedy:
                "Raise the limit (cpu.max, resources.limits.cpu) or use fewer threads; the stack shows only where the thread was then, not the cause."
        ),
        Rule(
            name: "starved",
            verdicts: [.starved],
            likely: "The thread could have run, and got no processor: the machine or its control group is overloaded.",
            remedy:
                "Look for what else runs there (top, cpu.pressure), or give the server more CPU; the stack shows only where the thread was then, not the cause."
        ),
        Rule(
            name: "on_cpu",
            verdicts: [.onCPU],
            likely: "The thread computed all the time.",
            remedy:
                "Split the work into short turns by a timer, or move it off the loop. The tree shows where the time went.",
            swiftRemedy:
                "Split the work into short turns (timers; Task.yield()), or move it off the loop. The tree shows where the time went."
        ),
        Rule(
            name: "disk_wait",
            verdicts: [.diskWait],
            likely: "The thread waited for a disk: for a file, or for memory that had to be read back from it.",
            remedy: "Read and write files off the loop; with major faults, look at memory limits and swap."
        ),
        Rule(
            name: "waiting",
            verdicts: [.waiting],
            likely: "The thread waited in a blocking call.",
            remedy: "Move the call off the loop, or use its asynchronous form; give it a time limit."
        ),
        Rule(
            name: "paused",
            verdicts: [.paused],
            likely: "The thread was stopped from outside, by a debugger or by a signal like SIGSTOP.",
            remedy: "The code is not the cause; look at who stopped the thread."
        ),
        Rule(
            name: "unknown",
            verdicts: [.unknown],
            likely: "The evidence does not show why it was stalled.",
            remedy: "Run 'stall-monitor doctor' on the server: it tells what the monitor may not read there."
        ),
    ]
}
