import RunLoopKit
import StackCapture
import StallMonitor

/// One thread of a watched process: what is read of it, the loop that it turns, if it does, and the stall under way. Confined to the
/// watcher's thread.
final class WatchedThread {
    let threadID: Int32
    private let files: ThreadFiles
    private var search: LoopFinder
    /// Looks until the next one of a thread that turns no loop, as far as is known.
    private var pause = 0
    private var looks = 0
    private(set) var loop: ObservedLoop?
    /// Its descriptor is waited on by other threads, too: nothing can be told of this one.
    private(set) var sharesItsDescriptor = false

    /// Nil where there is no such thread any more.
    init?(threadID: Int32, ofProcess processID: Int32) {
        guard let files = ThreadFiles(threadID: threadID, ofProcess: processID) else { return nil }
        (self.threadID, self.files) = (threadID, files)
        search = LoopFinder(isMainThread: threadID == processID)
    }

    var name: String { files.name }

    /// What a look found.
    enum Sighting {
        case nothing
        /// It turns a loop, as is known now.
        case foundLoop
        case ended
    }

    /// Of a thread that turns no loop it is looked at less and less often.
    func look(_ context: WatchContext) -> Sighting {
        if let loop { return loop.look(files, &search, context) ? .nothing : .ended }
        guard pause == 0 else {
            pause -= 1
            return .nothing
        }
        looks += 1
        pause = looks < 40 ? 0 : 19
        guard !sharesItsDescriptor else { return .nothing }
        let time = MonotonicInstant.now
        guard let schedule = files.readSchedule() else { return .ended }
        guard let sight = files.readSight() else { return .nothing }
        let sighting = LoopFinder.Sighting(sight: sight, schedule: schedule, time: time)
        let lesson = search.note(sighting) { context.process.isOfLoop($0, files) }
        guard case .place(let place) = lesson else { return .nothing }
        loop = ObservedLoop(threadID: threadID, label: name, place: place, at: time, context)
        return .foundLoop
    }

    /// What it waits in now, for one that nobody knows a loop of.
    var present: ThreadSight? { files.readSight() }

    /// Why nobody knows whether it turns a loop, in a word: it never rested so far, or it waits as clients do, too. Nil for one that turns a
    /// known one, and for one that waits for something else.
    var doubtful: String? {
        guard loop == nil, !sharesItsDescriptor else { return nil }
        switch present {
        case .running: return "running"
        case .calling(let wait) where WaitCalls.native.onList.contains(wait.call):
            return SystemCall(number: wait.call, arguments: []).description
        default: return nil
        }
    }

    var descriptor: Int32? { search.likelyDescriptor }
    var loopDescriptor: Int32? { search.descriptor }

    /// Several threads take turns at its descriptor.
    func giveUp(_ context: WatchContext) {
        loop?.release(.unwatched, context)
        loop = nil
        search.forget()
        sharesItsDescriptor = true
    }
}
