import CLoopHooks
import RunLoopKit

/// The jobs of the main actor, which the main queue runs many of in one callout of the main loop.
package enum MainActorJobs {
    /// From now on each counts as a callout of its own: it is looked at, timed and blamed for itself. Otherwise what stands is the main queue, and
    /// all that it ran is one stall. Any thread, once.
    package static func tellApart() {
        // On the main loop's thread, in its callout: it is where the main queue runs its jobs.
        task_hooks_call_at_main_jobs { EventRunLoop.main.heartbeat.noteCallout() }
    }
}
