internal import CRunLoopShims

// Every way by which a loop runs foreign code has a frame of its own on the stack (R64). Readers of captured stacks classify
// by these names, so they are interface: a change here is a change of the format.
//
//   frame                                                               runs
//   __EVENT_RUN_LOOP_IS_CALLING_OUT_TO_AN_OBSERVER__                    an observer
//   __EVENT_RUN_LOOP_IS_CALLING_OUT_TO_A_BLOCK__                        a block of `perform`
//   __EVENT_RUN_LOOP_IS_CALLING_OUT_TO_A_SOURCE0__                      a signalled source
//   __EVENT_RUN_LOOP_IS_CALLING_OUT_TO_A_DESCRIPTOR_SOURCE__            a descriptor source's handler
//   __EVENT_RUN_LOOP_IS_CALLING_OUT_TO_A_TIMER__                        a timer
//   __EVENT_RUN_LOOP_IS_SERVICING_THE_MAIN_DISPATCH_QUEUE__             the main queue, and with it the main actor
//   event_run_loop_wait                                                 nothing: the loop is at rest
//
// Why the frames last in an optimised build: never inlined, never specialised or outlined (`_optimize(none)`), and with work
// left after the call, so that it is no tail call.

@_silgen_name("__EVENT_RUN_LOOP_IS_CALLING_OUT_TO_AN_OBSERVER__")
@inline(never) @_optimize(none)
func callOut(_ callback: LoopObserver.Callback, observer: LoopObserver, activity: EventRunLoop.Activity) {
    callback(observer, activity)
    run_loop_keep_frame()
}

@_silgen_name("__EVENT_RUN_LOOP_IS_CALLING_OUT_TO_A_BLOCK__")
@inline(never) @_optimize(none)
func callOut(block: @Sendable () -> Void) {
    block()
    run_loop_keep_frame()
}

@_silgen_name("__EVENT_RUN_LOOP_IS_CALLING_OUT_TO_A_SOURCE0__")
@inline(never) @_optimize(none)
func callOut(_ perform: EventSource.Perform, source: EventSource) {
    perform(source)
    run_loop_keep_frame()
}

@_silgen_name("__EVENT_RUN_LOOP_IS_CALLING_OUT_TO_A_DESCRIPTOR_SOURCE__")
@inline(never) @_optimize(none)
func callOut(_ handler: DescriptorSource.Handler, source: DescriptorSource, events: DescriptorSource.Events) {
    handler(source, events)
    run_loop_keep_frame()
}

@_silgen_name("__EVENT_RUN_LOOP_IS_CALLING_OUT_TO_A_TIMER__")
@inline(never) @_optimize(none)
func callOut(_ callback: EventTimer.Callback, timer: EventTimer) {
    callback(timer)
    run_loop_keep_frame()
}

@_silgen_name("__EVENT_RUN_LOOP_IS_SERVICING_THE_MAIN_DISPATCH_QUEUE__")
@inline(never) @_optimize(none)
func drainMainDispatchQueue() {
    run_loop_drain_main_queue()
    run_loop_keep_frame()
}
