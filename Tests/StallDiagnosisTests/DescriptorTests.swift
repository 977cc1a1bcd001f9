import Foundation
import Glibc
import RunLoopKit
import StallReports
import Testing

@testable import StallDiagnosis

@Suite("What a descriptor refers to")
struct DescriptorTests {
    @Test(
        "Kinds are recognised by the kernel's names",
        arguments: [
            ("/srv/a", DescriptorKind.file), ("pipe:[7]", .pipe), ("socket:[7]", .socket),
            ("anon_inode:[eventfd]", .eventfd), ("anon_inode:[eventpoll]", .epoll), ("anon_inode:inotify", .inotify),
            ("anon_inode:[timerfd]", .timerfd), ("anon_inode:[pidfd]", .pidfd), ("net:[4026531840]", .other),
        ]
    )
    func kinds(_ link: String, _ kind: DescriptorKind) {
        #expect(DescriptorReading(number: 1, link: link).kind == kind)
    }

    @Test("A deleted file keeps its path, without the kernel's mark")
    func deleted() {
        let reading = DescriptorReading(number: 1, link: "/tmp/a (deleted)")
        #expect(reading.isDeleted && reading.path == "/tmp/a")
        #expect(!DescriptorReading(number: 1, link: "pipe:[7] (deleted)").isDeleted)
        #expect(DescriptorReading(number: 1, link: nil).kind == .unknown)
    }

    @Test("The kernel's data about a descriptor")
    func info() {
        let file = DescriptorInfo(text: "pos:\t0\nflags:\t02\nmnt_id:\t27\nino:\t5\n")
        #expect(file.mount == 27 && file.process == nil)
        #expect(DescriptorInfo(text: "Pid:\t4711\nNSpid:\t4711\n").process == 4711)
        #expect(DescriptorInfo(text: "eventfd-count:               1f\n").count == 31)
        #expect(DescriptorInfo(text: "it_value: (1, 500000000)\n").timerNanoseconds == 1_500_000_000)
        #expect(DescriptorInfo(text: "nonsense\n:\nit_value: (x)") == DescriptorInfo(text: ""))
    }

    @Test("Real descriptors: a closed file, and one that was never open")
    func real() {
        var name = Array("/tmp/stall-monitor-XXXXXX".utf8CString)
        let file = unsafe name.withUnsafeMutableBufferPointer { unsafe mkstemp($0.baseAddress!) }
        let path = unsafe name.withUnsafeBufferPointer { unsafe String(cString: $0.baseAddress!) }
        defer { close(file) }
        unsafe unlink(path)
        let gone = DescriptorReading.read(file)
        #expect(gone.path == path && gone.isDeleted && gone.info?.mount != nil)
        #expect(DescriptorReading.read(99_999).link == nil)
    }

    @Test("The descriptors that a loop waits for: an eventfd with its count, an epoll set without details")
    func loopsOwn() throws {
        // A loop creates its descriptors when it first sleeps.
        let source = EventSource { _ in }
        EventRunLoop.current.add(source)
        EventRunLoop.current.run(mode: .default, for: .milliseconds(1))
        source.invalidate()
        func isAsSaid() throws -> Bool {
            let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap(Int32.init)
            let readings = open.map { DescriptorReading.read($0) }
            let (sets, counters) = (readings.filter { $0.kind == .epoll }, readings.filter { $0.kind == .eventfd })
            return !sets.isEmpty && sets.allSatisfy { $0.info == nil } && !counters.isEmpty
                && counters.allSatisfy { $0.info?.count != nil }
        }
        // Tests that run beside this one open and close their own: between the parts of a reading a number may change hands.
        #expect(try (0..<20).contains { _ in try isAsSaid() })
    }

    @Test("The mount table: escapes, types, and network file systems")
    func mounts() {
        let table = MountTable(
            """
            27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
            41 27 0:50 /a /mnt/with\\040blank rw master:1 shared:2 - nfs4 host:/a rw,vers=4.2
            43 27 0:51 / /mnt/s rw - fuse.sshfs user@host:/ rw
            nonsense
            44 27 0:52 / /x rw shared:9
            """
        )
        #expect(table.mounts.count == 3 && table.type(of: 41) == "nfs4" && table.mounts[1].point == "/mnt/with blank")
        #expect(table.mounts.map { MountTable.isRemote($0.type) } == [false, true, true])
    }

    @Test("The holder of a file's lock, not a waiter for it")
    func locks() {
        let locks = FileLocks(
            """
            1: POSIX  ADVISORY  WRITE 19751 fe:00:16240082 1073741824 1073742335
            2: FLOCK  ADVISORY  WRITE 708 fe:00:77 0 EOF
            2: -> FLOCK  ADVISORY  WRITE 900 fe:00:77 0 EOF
            3: -> FLOCK  ADVISORY  WRITE 901 fe:00:78 0 EOF
            4: OFDLCK ADVISORY  WRITE -1 fe:00:79 0 EOF
            """
        )
        func holder(_ inode: UInt64) -> Int32? { locks.holder(of: .init(major: 0xfe, minor: 0, inode: inode)) }
        #expect(holder(77) == 708 && holder(78) == nil && holder(79) == nil)
    }

    @Test("Of several processes that have locked parts of a file, the one that is waited for is the holder")
    func awaitedLock() {
        let locks = FileLocks(
            """
            1: POSIX  ADVISORY  WRITE 10 fe:00:77 0 9
            2: POSIX  ADVISORY  WRITE 20 fe:00:77 100 109
            2: -> POSIX  ADVISORY  WRITE 30 fe:00:77 100 109
            2:  -> POSIX  ADVISORY  WRITE 31 fe:00:77 100 109
            3: OFDLCK ADVISORY  WRITE -1 fe:00:77 200 209
            3: -> POSIX  ADVISORY  WRITE 32 fe:00:77 200 209
            4: nonsense
            4: -> POSIX  ADVISORY  WRITE 33 fe:00:77 200 209
            """
        )
        let file = FileLocks.File(major: 0xfe, minor: 0, inode: 77)
        #expect(locks.holder(of: file, awaitedBy: 30) == 20 && locks.holder(of: file, awaitedBy: 31) == 20)
        #expect(locks.holder(of: file, awaitedBy: 32) == nil, "no process holds it")
        for other: Int32? in [33, 99, nil] { #expect(locks.holder(of: file, awaitedBy: other) == 10) }
        let own = FileLocks("1: FLOCK  ADVISORY  WRITE 40 fe:00:77 0 EOF\n")
        #expect(own.holder(of: file, awaitedBy: 40) == nil, "it no longer waits")
    }

    @Test("A wait for a lock of an open file names no waiter: the holder is the only one so awaited, or unknown")
    func waitsForOpenFiles() {
        let others = "1: POSIX  ADVISORY  WRITE 10 fe:00:77 0 9\n2: POSIX  ADVISORY  WRITE 20 fe:00:77 100 109\n"
        let wait = "2: -> OFDLCK ADVISORY  WRITE -1 fe:00:77 100 109\n"
        let file = FileLocks.File(major: 0xfe, minor: 0, inode: 77)
        #expect(FileLocks(others + wait).holder(of: file, awaitedBy: 30) == 20)
        let range = "OFDLCK ADVISORY  WRITE -1 fe:00:77 200 209\n"
        let second = "3: \(range)3: -> \(range)"
        #expect(FileLocks(others + second).holder(of: file, awaitedBy: 30) == nil)
        #expect(FileLocks(others + wait + second).holder(of: file, awaitedBy: 30) == nil, "it may wait for either")
    }

    @Test("The holder of another file system's file with the same inode is not named")
    func locksOfTwoFileSystems() {
        let locks = FileLocks(
            """
            1: FLOCK  ADVISORY  WRITE 600 00:17:30 0 EOF
            2: FLOCK  ADVISORY  WRITE 700 00:18:30 0 EOF
            3: OFDLCK ADVISORY  WRITE -1 00:19:30 0 EOF
            4: POSIX  ADVISORY  WRITE 800 00:18:31 1073741825 1073741825
            """
        )
        func file(_ major: UInt64, _ minor: UInt64, _ inode: UInt64) -> FileLocks.File {
            .init(major: major, minor: minor, inode: inode)
        }
        #expect(locks.holder(of: file(0, 0x18, 30)) == 700 && locks.holder(of: file(0, 0x17, 30)) == 600)
        #expect(locks.holder(of: file(0, 0x19, 30)) == nil && locks.holder(of: file(0, 0x20, 30)) == nil)
        #expect(locks.database(file(0xfe, 0, 31), isIndex: false, self: 7) == nil)
        // A file system whose device has another number in stat(2).
        #expect(locks.database(file(0, 0x99, 31), isIndex: false, self: 7)?.pid == 800)
    }

    @Test("A file's numbers are those that the kernel's list of locks has")
    func numbersOfAFile() {
        var status = stat()
        (status.st_dev, status.st_ino) = (0x8_0000_1234_5678, 77)
        #expect(FileLocks.File(status) == .init(major: 0x8_0456, minor: 0x1_2378, inode: 77))
    }

    @Test(
        "The holder of a SQLite database: another process that writes or reads, or this one; only in SQLite's own bytes"
    )
    func databaseLocks() {
        let locks = FileLocks(
            """
            1: POSIX  ADVISORY  READ 10 fe:00:1 1073741826 1073742335
            2: POSIX  ADVISORY  WRITE 20 fe:00:1 1073741825 1073741825
            3: -> POSIX  ADVISORY  WRITE 21 fe:00:1 1073741825 1073741825
            4: POSIX  ADVISORY  READ 10 fe:00:2 1073741826 1073742335
            5: POSIX  ADVISORY  WRITE 7 fe:00:2 1073741825 1073741825
            6: POSIX  ADVISORY  WRITE 7 fe:00:3 120 120
            7: POSIX  ADVISORY  READ 7 fe:00:4 1073741826 1073742335
            8: POSIX  ADVISORY  WRITE 30 fe:00:5 0 EOF
            9: FLOCK  ADVISORY  WRITE 30 fe:00:6 1073741826 EOF
            10: POSIX  ADVISORY  WRITE 30 fe:00:3 128 128
            """
        )
        func owner(_ inode: UInt64, isIndex: Bool = false) -> [Int32] {
            let file = FileLocks.File(major: 0xfe, minor: 0, inode: inode)
            return locks.database(file, isIndex: isIndex, self: 7).map { [$0.pid, Int32($0.rank)] } ?? []
        }
        #expect(owner(1) == [20, 0])
        #expect(owner(2) == [10, 1])
        #expect(owner(3, isIndex: true) == [7, 2])
        for inode: UInt64 in [3, 4, 5, 6, 99] { #expect(owner(inode).isEmpty) }
    }
}
