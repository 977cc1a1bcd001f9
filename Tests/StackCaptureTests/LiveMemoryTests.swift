import CStackCapture
import CStalls
import Glibc
import StackCapture
import TestSupport
import Testing

@Suite(
    "Threads known only by id, and memory that may vanish",
    .captureSignal,
    .timeLimit(.minutes(10))
)
struct LiveMemoryTests {
    @Test("A thread's stack is found by its id alone, asleep and running", arguments: [STALL_READ, STALL_SPIN])
    func byNumber(_ kind: stall_kind) throws {
        // A running thread is captured once it gets a processor, which takes long on a busy machine.
        let capturer = try StackCapturer(deadline: .seconds(60))
        defer { capturer.invalidate() }
        let stall = unsafe stall_start(kind, 5, 0, nil)
        defer { unsafe _ = stall_finish(stall) }
        let thread = unsafe stall_thread(stall)
        let bounds = unsafe UInt(stall_stack_low(stall))..<UInt(stall_stack_high(stall))
        // A thread that has just been started may not have reached its call yet.
        if kind == STALL_READ { waitUntil { StackCapturer.sighting(ofThread: thread)?.systemCall?.name == "read" } }
        let (known, found) = (capturer.capture(threadID: thread, stack: bounds), capturer.capture(threadID: thread))
        let (a, b) = (try known.get(), try found.get())
        #expect(a.isComplete && b.isComplete)
        // The outer frames are the same, wherever a spinning thread is.
        #expect(a.frames.suffix(6).map(\.address) == b.frames.suffix(6).map(\.address))
        #expect(b.method == (kind == STALL_READ ? .quiet : .signal))
    }

    @Test("The bounds of one stack are found without a list of all threads")
    func boundsAlone() throws {
        var opened: UnsafeMutablePointer<stackcap_arena>?
        let outcome = unsafe stackcap_arena_open(0, &opened)
        #expect(outcome.status == STACKCAP_OK)
        let arena = try unsafe #require(opened)
        defer { unsafe stackcap_arena_close(arena) }
        let own = try #require(ThreadIdentity.current())
        let inside = UInt64(own.stack.upperBound - 1)
        var (low, high) = (UInt64(0), UInt64(0))
        let isFound = unsafe stackcap_arena_bounds(arena, inside, &low, &high)
        #expect(isFound && low <= inside && inside < high)
        let listed = unsafe arena.pointee.thread_count + arena.pointee.thread_capacity
        #expect(listed == 0)
    }

    @Test("The first byte of a stack that follows another one is its own")
    func neighbours() throws {
        let (size, count) = (Int(sysconf(Int32(_SC_PAGESIZE))), 16)
        // A page without access at either end: the kernel would make the first one part of a mapping that ends right before it.
        let length = (count + 2) * size
        let all = try unsafe #require(mmap(nil, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
        try #require(unsafe all != MAP_FAILED)
        defer { unsafe munmap(all, length) }
        let pages = unsafe all + size
        // Alternately shared and private, so that the kernel merges none. Of so many, a search meets one before its successor.
        for index in 0..<count {
            let flags = (index % 2 == 0 ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS | MAP_FIXED
            try #require(unsafe mmap(pages + index * size, size, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED)
        }
        var opened: UnsafeMutablePointer<stackcap_arena>?
        #expect(unsafe stackcap_arena_open(0, &opened).status == STACKCAP_OK)
        let arena = try unsafe #require(opened)
        defer { unsafe stackcap_arena_close(arena) }
        for index in 0..<count {
            let start = unsafe UInt64(UInt(bitPattern: pages + index * size))
            var (low, high) = (UInt64(0), UInt64(0))
            #expect(unsafe stackcap_arena_bounds(arena, start, &low, &high))
            #expect(low == start && high == start + UInt64(size))
        }
    }

    @Test("A stack is found behind 20,000 other mappings")
    func manyMappings() throws {
        let capturer = try StackCapturer(deadline: .seconds(60))
        defer { capturer.invalidate() }
        let stall = unsafe stall_start(STALL_READ, 5, 0, nil)
        defer { unsafe _ = stall_finish(stall) }
        let (size, count) = (Int(sysconf(Int32(_SC_PAGESIZE))), 40_000)
        // Below all stacks, if the kernel takes the hint. Every other page is writable, so each is a mapping of its own.
        let hint = unsafe UnsafeMutableRawPointer(bitPattern: 0x1000_0000_0000)
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        let pages = unsafe mmap(hint, count * size, PROT_NONE, flags, -1, 0)!
        defer { unsafe munmap(pages, count * size) }
        let divided = stride(from: 0, to: count, by: 2).count { page in
            unsafe mprotect(pages + page * size, size, PROT_READ | PROT_WRITE) == 0
        }
        try #require(divided == count / 2, "vm.max_map_count")
        let thread = unsafe stall_thread(stall)
        let stack = try capturer.capture(threadID: thread).get()
        #expect(stack.isComplete)
    }

    @Test("There is no stack of the calling thread, and none of a thread that does not exist")
    func noThread() throws {
        let capturer = try StackCapturer()
        defer { capturer.invalidate() }
        #expect(throws: CaptureError.self) { try capturer.capture(threadID: StackCapturer.callingThread).get() }
        #expect(throws: CaptureError.self) { try capturer.capture(threadID: 1 << 30).get() }
        #expect(StackCapturer.sighting(ofThread: 1 << 30) == nil)
    }

    @Test("Memory is read as it is; what nobody can read causes no fault, even at its edge")
    func words() throws {
        let capturer = try StackCapturer()
        defer { capturer.invalidate() }
        let size = Int(sysconf(Int32(_SC_PAGESIZE)))
        // Nobody can read the second page, which is beyond the file's end, and nobody else's mapping can come there: a page that was
        // unmapped would be the place for the next one that any thread maps.
        let file = try unsafe #require(tmpfile())
        defer { unsafe _ = fclose(file) }
        try #require(unsafe ftruncate(fileno(file), size) == 0)
        let pages = try unsafe #require(mmap(nil, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0))
        try #require(unsafe pages != MAP_FAILED)
        defer { unsafe munmap(pages, 2 * size) }
        let edge = UInt(bitPattern: pages) + UInt(size)
        unsafe pages.storeBytes(of: 0xfeed_beef, toByteOffset: size - 4, as: UInt32.self)
        #expect(capturer.words(at: edge - 8, count: 2) == [0, 0xfeed_beef])
        #expect(capturer.words(at: edge - 4, count: 2) == nil)
        #expect(capturer.words(at: edge, count: 1) == nil && capturer.words(at: 0, count: 1) == nil)
        capturer.invalidate()
        #expect(capturer.words(at: edge - 8, count: 2) == nil)
    }

    @Test("A sleeping thread is recognised as still asleep; a running one is in no call")
    func sightings() throws {
        let (sleeper, spinner) = unsafe (stall_start(STALL_READ, 0, 0, nil), stall_start(STALL_SPIN, 0, 0, nil))
        defer { unsafe (_, _) = (stall_finish(sleeper), stall_finish(spinner)) }
        func sighting() -> ThreadSighting? { unsafe StackCapturer.sighting(ofThread: stall_thread(sleeper)) }
        // A sighting reads the time slices before the call: one of a thread that fell asleep in between shows the call with an older count.
        var seen: ThreadSighting?
        waitUntil {
            seen = sighting()
            guard let seen, seen.systemCall?.name == "read" else { return false }
            return sighting()?.sleepsOn(since: seen) == true
        }
        let first = try #require(seen)
        let again = try #require(sighting())
        #expect(again.systemCall?.name == "read" && again.sleepsOn(since: first))
        let running = unsafe try #require(StackCapturer.sighting(ofThread: stall_thread(spinner)))
        #expect(running.systemCall == nil && !running.sleepsOn(since: running))
    }
}
