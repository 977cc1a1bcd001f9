import CStalls
import Glibc
import StackCapture
import Testing

@Test func smoke() throws {
    print("EXC", unsafe String(cString: stall_file_of("_Unwind_RaiseException")!))
    let capturer = try StackCapturer()
    for (kind, name) in [(STALL_NANOSLEEP, "nanosleep"), (STALL_SPIN, "spin"), (STALL_LOCK, "lock"), (STALL_READ, "read"), (STALL_ALLOCATE, "alloc")] {
        let stall = Stall(kind, depth: 5, for: .milliseconds(500))
        for _ in 0..<30000 { sched_yield() }
        let s = try capturer.capture(stall).get()
        print(name, s.method, s.systemCall as Any, s.truncation as Any, s.cost)
        print(zip(names(of: s), s.frames).map { "\($0) \($1.found)" })
        stall.finish()
    }
    print(capturer.counters)
}
@Test func held() throws {
    let capturer = try StackCapturer()
    for depth in [5, 100, 1000, 3000] {
        let stall = Stall(STALL_SPIN, depth: depth)
        var held: [UInt64] = [], unw: [UInt64] = []; var b: UInt64 = 0; var n = 0; var tr: CapturedStack.Truncation?
        for _ in 0..<300 { let s = try capturer.capture(stall).get(); held.append(s.cost.heldNanoseconds); unw.append(s.cost.unwindNanoseconds); b = s.cost.bytesCopied; n = s.frames.count; tr = s.truncation }
        held.sort(); unw.sort()
        print("depth", depth, "frames", n, "bytes", b, "held med", held[150], "p99", held[297], "unwind med", unw[150], tr as Any)
        stall.finish()
    }
    print(capturer.counters)
}
