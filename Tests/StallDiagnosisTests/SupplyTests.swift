import RunLoopKit
import Testing

@testable import StallDiagnosis

@Suite("The supply of CPU time")
struct SupplyTests {
    private func files(_ cgroup: String, _ mounts: String, _ contents: [String: String]) -> SupplyFiles {
        SupplyFiles(cgroup: cgroup, mounts: mounts) { contents[$0] }
    }

    @Test("Version 2: the cgroup's own limit and those around it")
    func versionTwo() {
        let found = files(
            "0::/system.slice/shop.service\n",
            "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            [
                "/sys/fs/cgroup/system.slice/shop.service/cpu.max": "max 100000\n",
                "/sys/fs/cgroup/system.slice/cpu.max": "150000 100000\n",
            ]
        )
        #expect(found.limited == [.init(statistics: "/sys/fs/cgroup/system.slice/cpu.stat", quotaPercent: 150)])
        #expect(found.pressure == "/sys/fs/cgroup/system.slice/shop.service/cpu.pressure")
    }

    @Test("In a container's namespace the mount point is the cgroup")
    func container() {
        let found = files(
            "0::/\n",
            "31 23 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
            ["/sys/fs/cgroup/cpu.max": "20000 100000\n"]
        )
        #expect(found.limited == [.init(statistics: "/sys/fs/cgroup/cpu.stat", quotaPercent: 20)])
    }

    @Test("In a container without its own namespace, the mount begins at the container's cgroup")
    func bareContainer() {
        let found = files(
            "4:cpu,cpuacct:/docker/abc\n0::/\n",
            "31 23 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
            [
                "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
                "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            ]
        )
        #expect(found.limited == [.init(statistics: "/sys/fs/cgroup/cpu,cpuacct/cpu.stat", quotaPercent: 50)])
        #expect(found.pressure == nil)
    }

    @Test("A group that no mount shows has no counts, unless it is our own: the mount is that of our own container")
    func otherContainer() {
        let mounts = "9 8 0:1 / /c ro - cgroup2 cgroup rw\n7 8 0:2 /docker/a /v1 ro - cgroup cgroup rw,freezer\n"
        let membership = "4:freezer:/docker/b\n0::/../other.scope\n"
        let limit = ["/c/cpu.max": "20000 100000\n"]
        let other = SupplyFiles(cgroup: membership, mounts: mounts, isOurs: false) { limit[$0] }
        #expect(other == SupplyFiles())
        let own = SupplyFiles(cgroup: membership, mounts: mounts) { limit[$0] }
        #expect(own.limited == [.init(statistics: "/c/cpu.stat", quotaPercent: 20)] && own.freezer.freezer == "/v1")
        // What a mount includes is shown for any process.
        let neighbour = SupplyFiles(cgroup: "0::/shop\n", mounts: mounts, isOurs: false) { limit[$0] }
        #expect(neighbour.limited == own.limited && neighbour.pressure == "/c/shop/cpu.pressure")
    }

    @Test("Version 1 without a limit says -1")
    func unlimited() {
        let contents = ["/c/cpu.cfs_quota_us": "-1\n", "/c/cpu.cfs_period_us": "100000\n"]
        #expect(files("1:cpu:/\n", "1 1 0:1 / /c rw - cgroup cgroup rw,cpu\n", contents).limited.isEmpty)
        #expect(files("", "", [:]) == SupplyFiles())
        #expect(files("0::/../..\n", "1 1 0:1 / /c rw - cgroup2 cgroup2 rw\n", [:]).pressure == "/c/cpu.pressure")
    }

    @Test("The kernel's counters, in the formats of both versions")
    func counts() {
        let one = ProcessorSupply.Throttling("nr_periods 5\nnr_throttled 2\nthrottled_time 160000000\n")
        #expect(one?.throttledNanoseconds == 160_000_000 && one?.periods == 5 && one?.throttledPeriods == 2)
        let two = ProcessorSupply.Throttling("usage_usec 1\nnr_periods 5\nnr_throttled 2\nthrottled_usec 160000\n")
        #expect(two == one)
        #expect(ProcessorSupply.Throttling("usage_usec 44544346284\n") == nil)
        #expect(ProcessorSupply.pressure("some avg10=1.0 avg60=2.0 avg300=3.0 total=77\nfull avg10=0 total=5\n") == 77)
        #expect(ProcessorSupply.pressure("") == nil)
        #expect(ProcessorSupply.steal("cpu  1 2 3 4 5 6 7 150 0 0\ncpu0 1\n") == 1_500_000_000)
        #expect(ProcessorSupply.Load("36.50 20.91 10.03 35/362 11018\n")?.runnable == 35)
        #expect(ProcessorSupply.Load("") == nil && ProcessorSupply.steal("intr 5") == nil)
    }

    @Test("The real files of this process can be read")
    func real() {
        let location = SupplyLocation()
        var meter = SupplyMeter(location: location)
        #expect(meter.reading(at: .now) == nil)
        location.search()
        let reading = meter.reading(at: .now)
        #expect(reading?.supply.load != nil && reading?.supply.steal != nil)
    }
}
