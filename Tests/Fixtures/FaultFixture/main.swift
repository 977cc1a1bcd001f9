import CFaults
import Glibc

// Loops in a process with faults. Each scenario prints what it observed; the tests compare.

switch CommandLine.arguments.dropFirst().first {
case "closed-awake": closedWhileAwake()
case "closed-asleep": closedWhileAsleep()
case "closed-worker": closedWhileWorkerSleeps()
case "swapped": swappedNumbers()
case "closed-set": closedAlone("eventpoll")
case "closed-wake-descriptor": closedAlone("eventfd")
case "wake-descriptor-taken": wakeDescriptorTaken()
case "closed-beside-clock": closedBesideClock()
case "closed-before-adding": closedBeforeAdding()
case "taken-by-sets": takenBySets()
case "sources-told": sourcesTold()
case "numbers-taken": numbersTakenByLoop()
case "no-fcntl": sandboxed()
case "no-exact-waits": withoutExactWaits()
case "main-queue-taken": mainQueueTaken()
case "exhausted": exhausted()
case "exhausted-main": exhaustedOnMain()
case "exhausted-middle": exhaustedInTheMiddle()
case "no-eventfd": injected(faults_eventfd, ENOMEM)
case "no-epoll": injected(faults_epoll_create, ENFILE)
case "no-watch": injected(faults_epoll_add, ENOSPC)
case "main-queue-unwatched": mainQueueUnwatched()
case "main-queue-polled": mainQueuePolled()
case "source-unwatched": sourceUnwatched()
case "signals": signalStorm()
case "suspended": suspended()
case "clock-steps": clockSteps()
case "many-descriptors": manyDescriptors()
case "many-loops": manyLoops()
default:
    say("unknown scenario")
    exit(64)
}
