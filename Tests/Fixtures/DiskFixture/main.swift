import CDiskFaults
import Glibc
import StallMonitor

// A server whose report directory fails. Arguments: the scenario, and a directory
// for it. Prints what it observed, one line each; the tests compare the lines.

let arguments = CommandLine.arguments
guard arguments.count == 3 else { fatalError("usage: DiskFixture SCENARIO DIRECTORY") }
var scene = Scene(root: arguments[2])
switch arguments[1] {
case "create": scene.failing { disk_fail(disk_create, $0 ? EDQUOT : 0) }
case "write": scene.failing { disk_fail(disk_write, $0 ? ENOSPC : 0) }
case "fsync": scene.failing { disk_fail(disk_fsync, $0 ? EIO : 0) }
case "rename": scene.failing { disk_fail(disk_rename, $0 ? EIO : 0) }
case "full": scene.onDisk("size=512k") { scene.fill($0) }
case "inodes": scene.onDisk("nr_inodes=40") { scene.useUpInodes($0) }
case "read-only":
    // A file that is open for writing would prevent the remount.
    scene.keepsLiveRecord = false
    scene.onDisk("size=512k") { scene.remount(readOnly: $0) }
case "forbidden": scene.forbidden()
case "removed": scene.removed()
case "record": scene.refusingRecord()
case "list": scene.refusingList()
case "hang": scene.hanging()
case "stopped": scene.stopped()
case "hang-stop": scene.stopping()
case "touches": scene.touches()
default: fatalError("no such scenario")
}
