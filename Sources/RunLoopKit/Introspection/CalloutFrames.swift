import CRunLoopShims

// Every way in which a loop runs foreign code has its own frame on the stack (R64). Readers of captured stacks classify by
// these names, so they are interface:
//
//   frame                                                    runs
//   event_run_loop_is_calling_out_to_an_observer             an observer
//   event_run_loop_is_calling_out_to_a_block                 a block of `perform`
//   event_run_loop_is_calling_out_to_a_source0               a signalled source
//   event_run_loop_is_calling_out_to_a_descriptor_source     a descriptor source's handler
//   event_run_loop_is_calling_out_to_a_timer                 a timer
//   event_run_loop_is_calling_out_to_a_perform_request       a perform request
//   event_run_loop_is_calling_out_to_a_message_handler       a port's handler (inside a descriptor source's)
//   event_run_loop_is_servicing_the_main_dispatch_queue      the main queue, and with it the main actor
//   event_run_loop_is_running_a_task                         a task's job, that of a pinned actor included
//   event_run_loop_wait                                      nothing: the loop is at rest
//   event_run_loop_wait_for_a_perform_request                nothing: the thread waits for another's loop
//   event_run_loop_wait_for_a_worker_to_end                  nothing: the thread waits for a worker's end
//
// The frames are C functions; callouts.c gives the reason. Each function here, and one in RunLoopPorts, puts the value to be
// called on the stack and calls one of them. (A context pointer is valid for the duration of the call, and has the type that
// was stored three lines above.)

/// Maps a function's address to the frame's name, for a program that was stripped of symbols.
package enum CalloutFrames {
    /// - Parameter start: The start address of a function of this process.
    /// - Returns: The frame's name; nil for any other function.
    package static func name(ofFunctionAt start: UInt) -> String? {
        unsafe run_loop_callout_name(start).map { unsafe String(cString: $0) }
    }
}

func callOut(_ callback: LoopObserver.Boxed, observer: LoopObserver, activity: EventRunLoop.Activity) {
    var call = (callback, observer, activity)
    unsafe withUnsafeMutablePointer(to: &call) { context in
        unsafe event_run_loop_is_calling_out_to_an_observer(
            { context in
                let (callback, observer, activity) = unsafe context.assumingMemoryBound(
                    to: (LoopObserver.Boxed, LoopObserver, EventRunLoop.Activity).self
                ).pointee
                callback.call(observer, activity)
            },
            context
        )
    }
}

/// Moves the block out of its storage.
func callOut(moving block: UnsafeMutablePointer<BlockQueue.Block>) {
    unsafe event_run_loop_is_calling_out_to_a_block(
        { context in
            let block = unsafe context.assumingMemoryBound(to: BlockQueue.Block.self).move()
            block.body()
        },
        block
    )
}

func callOut(_ perform: EventSource.Boxed, source: EventSource) {
    var call = (perform, source)
    unsafe withUnsafeMutablePointer(to: &call) { context in
        unsafe event_run_loop_is_calling_out_to_a_source0(
            { context in
                let (perform, source) = unsafe context.assumingMemoryBound(to: (EventSource.Boxed, EventSource).self)
                    .pointee
                perform.call(source)
            },
            context
        )
    }
}

func callOut(
    _ handler: DescriptorSource.Boxed,
    source: DescriptorSource,
    events: DescriptorSource.Events
) -> DescriptorSource.Finding {
    var call = (handler, source, events, DescriptorSource.Finding.something)
    unsafe withUnsafeMutablePointer(to: &call) { context in
        unsafe event_run_loop_is_calling_out_to_a_descriptor_source(
            { context in
                let call = unsafe context.assumingMemoryBound(
                    to: (
                        DescriptorSource.Boxed, DescriptorSource, DescriptorSource.Events, DescriptorSource.Finding
                    ).self
                )
                switch unsafe call.pointee.0 {
                case .handler(let handle): unsafe handle(call.pointee.1, call.pointee.2)
                case .reader(let read): unsafe call.pointee.3 = read()
                }
            },
            context
        )
    }
    return call.3
}

func callOut(_ callback: EventTimer.Boxed, timer: EventTimer) {
    var call = (callback, timer)
    unsafe withUnsafeMutablePointer(to: &call) { context in
        unsafe event_run_loop_is_calling_out_to_a_timer(
            { context in
                let call = unsafe context.assumingMemoryBound(to: (EventTimer.Boxed, EventTimer).self)
                unsafe call.pointee.0.call(call.pointee.1)
            },
            context
        )
    }
}

func callOut(_ request: PerformRequest.Boxed) {
    var call = request
    unsafe withUnsafeMutablePointer(to: &call) { context in
        unsafe event_run_loop_is_calling_out_to_a_perform_request(
            { context in
                let request = unsafe context.assumingMemoryBound(to: PerformRequest.Boxed.self).pointee
                request.body()
            },
            context
        )
    }
}

func callOut(_ job: JobQueue.Job, loop: EventRunLoop) {
    var call = (job, loop)
    unsafe withUnsafeMutablePointer(to: &call) { context in
        unsafe event_run_loop_is_running_a_task(
            { context in
                let (job, loop) = unsafe context.assumingMemoryBound(to: (JobQueue.Job, EventRunLoop).self).pointee
                loop.run(job)
            },
            context
        )
    }
}
