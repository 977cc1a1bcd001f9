import Foundation
import Glibc

// The operations that stall a worker, each in a separate function, which reports name as the culprit.

let lock = NSLock()
private let secondLock = NSLock()

@inline(never)
func computeInAJob(_ stage: Stage) {
    while !stage.isOver { computeFor(5) }
}

@inline(never)
func computeFor(_ milliseconds: Int) {
    let end = ContinuousClock.now + .milliseconds(milliseconds)
    var sum = 1
    while ContinuousClock.now < end {
        for step in 0..<1_000 { sum = sum &* 31 &+ step }
    }
    if sum == 0 { print("") }
}

@inline(never)
func sleepInAJob(_ stage: Stage) {
    while !stage.isOver { usleep(100_000) }
}

@inline(never)
func sleepFor(_ milliseconds: Int, _ stage: Stage) {
    let seconds = milliseconds / 1_000
    if seconds > 0 { sleep(UInt32(clamping: seconds)) }
    usleep(UInt32(milliseconds % 1_000) * 1_000)
}

@inline(never)
func readInAJob(_ stage: Stage) {
    var byte: UInt8 = 0
    _ = unsafe read(stage.pipe.reading, &byte, 1)
}

@inline(never)
func waitForTheLock(_ stage: Stage) {
    // The intended holder takes it before.
    while lock.try() {
        lock.unlock()
        guard !stage.isOver else { return }
        sched_yield()
    }
    lock.lock()
    lock.unlock()
}

@inline(never)
func holdTheLock(_ stage: Stage) {
    lock.lock()
    sleepWithTheLock(stage)
    lock.unlock()
}

@inline(never)
private func sleepWithTheLock(_ stage: Stage) {
    while !stage.isOver { usleep(100_000) }
}

@inline(never)
func holdAsForeigner(_ stage: Stage) {
    while !stage.isOver { usleep(100_000) }
}

@inline(never)
func lockBoth(_ stage: Stage, first: Int) {
    let (mine, other) = first == 0 ? (lock, secondLock) : (secondLock, lock)
    mine.lock()
    while Jobs.locked(by: first) < 2 { usleep(1_000) }
    other.lock()
}

/// For the duration of the scene, and one of them for more than twice as long.
@inline(never)
func stand(_ stage: Stage, again: Bool) {
    while !stage.isOver { usleep(100_000) }
    if again { usleep(900_000) }
}
