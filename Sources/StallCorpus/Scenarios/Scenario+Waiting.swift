import Glibc
import RunLoopKit
import StallReports

extension Scenario {
    /// The thread waits in a system call.
    static let waiting: [Scenario] = [
        waiting("sleep-main", on: .mainLoop, culprit: "sleepInHandler") { stage in
            stage.stall { sleepInHandler(Stage.usualLength) }
        },
        waiting("sleep-worker", on: .worker, culprit: "sleepInHandler") { stage in
            stage.stall { sleepInHandler(Stage.usualLength) }
        },
        waiting("sleep-main-actor", on: .mainActor, culprit: "sleepInHandler") { stage in
            stage.stall { sleepInHandler(Stage.usualLength) }
        },
        waiting("static-value", on: .worker, culprit: "one-time initialization function for SlowValue.shared") {
            $0.stall { SlowValue.shared }
        },
        waiting("read-pipe", on: .worker, culprit: "readFromPipe") { stage in
            let pipe = try Descriptors.pipe()
            stage.afterwards { pipe.writeByte() }
            stage.stall { readFromPipe(pipe.first) }
        },
        waiting("write-pipe", on: .mainActor, culprit: "writeToFullPipe") { stage in
            let pipe = try Descriptors.pipe()
            pipe.fill()
            stage.afterwards { pipe.drain() }
            stage.stall { writeToFullPipe(pipe.second) }
        },
        waiting("receive", on: .mainLoop, culprit: "receiveFromSocket") { stage in
            let pair = try Descriptors.socketPair()
            stage.afterwards { pair.writeByte() }
            stage.stall { receiveFromSocket(pair.first) }
        },
        waiting("connect", on: .mainActor, culprit: "connectToServer") { stage in
            let path = stage.directory + "/server"
            let listener = try Descriptors.listener(at: path, full: true)
            stage.afterwards { _ = accept(listener, nil, nil) }
            stage.stall { connectToServer(path) }
        },
        waiting("accept", on: .worker, culprit: "acceptClient") { stage in
            let path = stage.directory + "/server"
            let listener = try Descriptors.listener(at: path, full: false)
            stage.afterwards { keep(connectToServer(path)) }
            stage.stall { acceptClient(listener) }
        },
        waiting("waitpid", on: .mainLoop, culprit: "waitForChild") { stage in
            let child = try startProgram("/bin/sleep", "0.6")
            stage.stall { waitForChild(child) }
        },
        waiting("flock", on: .worker, culprit: "lockFile") { stage in
            let path = stage.directory + "/lock"
            writeFile("", to: path, creating: true)
            let (other, own) = unsafe (open(path, O_RDWR | O_CLOEXEC), open(path, O_RDWR | O_CLOEXEC))
            flock(other, LOCK_EX)
            stage.afterwards { flock(other, LOCK_UN) }
            stage.stall { lockFile(own) }
        },
        waiting("resolve", on: .mainActor, culprit: "resolveName") { stage in
            let pair = try Descriptors.socketPair(type: SOCK_DGRAM)
            stage.stall { resolveName(pair.first, patience: Stage.usualLength) }
        },
        waiting("own-epoll", on: .worker, culprit: "corpus_wait_for_events") { stage in
            stage.stall { waitForEvents(Stage.usualLength) }
        },
    ]

    /// The thread waits for a disk, in a system call or at a page fault.
    static let disk: [Scenario] = [
        .stall("fsync", .disk, on: .mainActor, [.diskWait], culprit: "syncFile") { stage in
            let file = try ScratchFile()
            stage.stall { syncFile(file, until: .now.advanced(by: Stage.usualLength)) }
        },
        .stall("major-faults", .disk, on: .worker, [.diskWait], culprit: "readMappedFile") { stage in
            let file = try ScratchFile()
            stage.stall { readMappedFile(file, until: .now.advanced(by: Stage.usualLength)) }
        },
    ]

    private static func waiting(
        _ name: String,
        on place: Place,
        culprit: String,
        _ play: @escaping @Sendable (Stage) throws -> Void
    ) -> Scenario {
        .stall(name, .calls, on: place, [.blocked], culprit: culprit, play)
    }
}

extension Stage {
    /// A separate thread executes `work` once the stall has lasted its time.
    func afterwards(_ length: Duration = usualLength, _ work: @escaping @Sendable () -> Void) {
        startThread(named: "corpus-later") { [begun] in
            begun.wait()
            sleepFor(length)
            work()
        }
    }
}
