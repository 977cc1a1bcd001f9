import StackCapture
import StallReports
import Testing

@testable import StallDiagnosis

/// The numbers are those of x86-64; other architectures have different ones.
#if arch(x86_64)
    @Suite("A system call's arguments in words")
    struct DecodedCallTests {
        /// - Parameter memory: The bytes at each address.
        private func decode(_ number: Int, _ arguments: [UInt], memory: [UInt: [UInt8]] = [:]) -> DecodedCall {
            let arguments = arguments + [UInt](repeating: 0, count: 6 - arguments.count)
            return DecodedCall(SystemCall(number: number, arguments: arguments)) { address, count in
                memory[address].map { bytes in (bytes + [UInt8](repeating: 0, count: max(0, count - bytes.count))) }
                    .map { Array($0.prefix(count)) }
            }
        }

        private func words(_ call: DecodedCall) -> String {
            (call.arguments ?? []).map { "\($0.name)=\($0.value)" }.joined(separator: " ")
        }

        private func little(_ numbers: UInt64...) -> [UInt8] {
            numbers.flatMap { number in (0..<8).map { UInt8(truncatingIfNeeded: number >> ($0 * 8)) } }
        }

        @Test("Some eighty waiting calls are known by name")
        func table() {
            #expect(CallSignature.count >= 80)
            let calls = ["read", "ppoll", "clock_nanosleep", "waitid", "connect", "fsync", "flock"]
            #expect(calls.allSatisfy { CallSignature.of($0) != nil })
        }

        @Test("Descriptors, sizes and flags")
        func numbers() {
            let read = decode(0, [7, 0x7fff_0000, 4096])
            #expect(words(read) == "fd=7 count=4096" && read.descriptors == [7])
            #expect(words(decode(73, [3, 6])) == "fd=3 operation=LOCK_EX|LOCK_NB")
            #expect(words(decode(73, [3, 0x106])) == "fd=3 operation=LOCK_EX|LOCK_NB|0x100")
            #expect(words(decode(45, [5, 0x1000, 10, 0x4002])) == "fd=5 len=10 flags=MSG_PEEK|MSG_NOSIGNAL")
            #expect(words(decode(72, [5, 7])) == "fd=5 cmd=F_SETLKW")
            #expect(
                words(decode(202, [0x10, UInt(128 | 9), 2]))
                    == "uaddr=0x10 op=FUTEX_WAIT_BITSET|FUTEX_PRIVATE_FLAG val=2"
            )
            #expect(words(decode(61, [4711, 0, UInt(1 | 0x4000_0000)])) == "pid=4711 options=WNOHANG|__WALL")
            #expect(words(decode(232, [9, 0, 64, UInt(bitPattern: -1)])) == "epfd=9 maxevents=64 timeout=none")
        }

        @Test("Timeouts are read from memory, or left out")
        func timeouts() {
            let memory: [UInt: [UInt8]] = [0x1000: little(1, 500_000_000), 0x2000: little(.max, .max)]
            #expect(words(decode(35, [0x1000], memory: memory)) == "request=1.5s")
            #expect(words(decode(35, [0x3000], memory: memory)).isEmpty)
            #expect(words(decode(35, [0x2000], memory: memory)).isEmpty)
            #expect(words(decode(271, [0, 0, 0])) == "nfds=0 timeout=none")
            #expect(words(decode(7, [0, 0, 250])) == "nfds=0 timeout=250ms")
        }

        @Test("A moment until which a call waits is no length: shown for the wall clock, left out for others")
        func moments() {
            let memory = [0x1000 as UInt: little(1_780_000_000, 500_000_000)]
            let moment = "2026-05-28T20:26:40.500000000Z"
            let sent = decode(242, [5, 0, 10, 1, 0x1000], memory: memory)
            #expect(words(sent) == "fd=5 len=10 prio=1 timeout=\(moment)")
            #expect(words(decode(243, [5, 0, 10, 0, 0x1000], memory: memory)) == "fd=5 len=10 timeout=\(moment)")
            #expect(words(decode(243, [5, 0, 10])) == "fd=5 len=10 timeout=none")
            let sleep = { (clock: UInt) in self.words(self.decode(230, [clock, 1, 0x1000], memory: memory)) }
            #expect(sleep(0) == "clock=CLOCK_REALTIME flags=TIMER_ABSTIME request=\(moment)")
            #expect(sleep(1) == "clock=CLOCK_MONOTONIC flags=TIMER_ABSTIME")
        }

        @Test("A path is read up to its end, even next to unreadable memory")
        func paths() {
            let path = Array("/srv/data\0garbage".utf8)
            #expect(
                words(decode(257, [UInt(bitPattern: -100), 0x1fe0, 0o101], memory: [0x1fe0: path]))
                    == "path=/srv/data flags=O_WRONLY|O_CREAT"
            )
            #expect(words(decode(257, [3, 0x1fe0, 0])) == "dirfd=3 flags=O_RDONLY")
            let parts: [UInt: [UInt8]] = [0x1ffb: Array("/srv/".utf8), 0x2000: Array("data\0".utf8)]
            #expect(words(decode(257, [3, 0x1ffb, 0], memory: parts)) == "dirfd=3 path=/srv/data flags=O_RDONLY")
        }

        @Test("poll's and select's descriptors are found in their lists")
        func descriptorLists() {
            let polled: [UInt8] = [5, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0]
            #expect(decode(7, [0x1000, 3, 0], memory: [0x1000: polled]).descriptors == [5, 9])
            let set: [UInt8] = [0b0010_0000, 0b1]
            #expect(decode(23, [10, 0x1000], memory: [0x1000: set]).descriptors == [5, 8])
            #expect(decode(7, [0x1000, .max, 0]).descriptors.isEmpty)
        }

        @Test("An unknown call has no words, a call without arguments an empty list")
        func unknown() {
            #expect(decode(9_999, [1]).arguments == nil)
            #expect(decode(34, []).arguments == [])
        }
    }
#endif

@Suite("A socket's address in words")
struct SocketAddressTests {
    @Test("Each address family has its own form; a truncated address has none")
    func forms() {
        #expect(SocketAddress([2, 0, 0x15, 0x38, 10, 0, 0, 7, 0, 0, 0, 0])?.text == "10.0.0.7:5432")
        let loopback: [UInt8] = [10, 0, 0, 80, 0, 0, 0, 0] + [UInt8](repeating: 0, count: 15) + [1, 0, 0, 0, 0]
        #expect(SocketAddress(loopback)?.text == "[::1]:80")
        let mapped: [UInt8] = [10, 0, 0, 80, 0, 0, 0, 0] + [UInt8](repeating: 0, count: 10) + [255, 255, 1, 2, 3, 4]
        #expect(SocketAddress(mapped)?.text == "1.2.3.4:80")
        let whole: [UInt8] = [10, 0, 1, 0, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]
        #expect(SocketAddress(whole)?.text == "[2001:db8:0:1::2]:256")
        let unmapped = Array(whole.prefix(12)) + [0, 0, 0, 0, 0, 0, 255, 255, 1, 2, 3, 4]
        #expect(SocketAddress(unmapped)?.text == "[2001:db8::ffff:102:304]:256")
        #expect(SocketAddress([1, 0] + Array("/run/db\0x".utf8))?.text == "/run/db")
        #expect(SocketAddress([1, 0, 0] + Array("bus".utf8))?.text == "@bus")
        #expect(
            SocketAddress([1, 0])?.text == nil && SocketAddress([2, 0, 1])?.text == nil && SocketAddress([2]) == nil
        )
    }
}
