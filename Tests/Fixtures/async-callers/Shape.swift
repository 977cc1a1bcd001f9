import StackCapture

/// A way in which functions await each other.
struct Shape: Sendable {
    /// The kind of the stalled task.
    enum End {
        case task, asyncLet, taskGroup
    }

    var name: String
    var body: @Sendable (Int) async -> Int
    var end = End.task

    init(_ name: String, end: End = .task, _ body: @escaping @Sendable (Int) async -> Int) {
        (self.name, self.end, self.body) = (name, end, body)
    }

    static let all = functions + types + actors + tasks + sequences

    static let functions: [Shape] = [
        Shape("one function", one),
        Shape("before the first await", beforeFirst),
        Shape("after the second await", afterSecond),
        Shape("chain of two", chainTwo),
        Shape("chain of five", chainFive),
        Shape("throwing", throwing),
        Shape("typed throws", typedThrowing),
        Shape("rethrowing", rethrowing),
        Shape("generic", generic),
        Shape("closure", closure),
        Shape("escaping closure", escapingClosure),
        Shape("nested functions", nested),
        Shape("recursion of 50", recursion),
        Shape("inout", inOut),
        Shape("large frame", largeFrame),
        Shape("many live values", manyLive),
        Shape("defer", deferring),
        Shape("loop", loop),
        Shape("deep synchronous calls", deepSynchronous),
        Shape("autoclosure", autoclosure),
        Shape("default argument", defaultArgument),
        Shape("tuple result", tuple),
        Shape("opaque result", opaque),
    ]
    static let types: [Shape] = [
        Shape("protocol witness", witness),
        Shape("generic witness", genericWitness),
        Shape("existential with default", protocolExtension),
        Shape("class override", classOverride),
        Shape("property getter", getter),
        Shape("subscript", subscripting),
        Shape("initialiser", initialiser),
        Shape("throwing initialiser", throwingInitialiser),
        Shape("static method", staticMethod),
        Shape("method value", methodValue),
        Shape("enum method", enumMethod),
        Shape("noncopyable", noncopyable),
        Shape("variadic generics", parameterPack),
    ]
    static let actors: [Shape] = [
        Shape("default actor", defaultActor),
        Shape("actor calls actor", actorToActor),
        Shape("actor with own executor", customExecutor),
        Shape("main actor", mainActor),
        Shape("global actor", globalActor),
        Shape("isolated parameter", isolatedParameter),
        Shape("nonisolated(nonsending)", nonsending),
        Shape("@concurrent", concurrent),
        Shape("caller's isolation", inheritedIsolation),
    ]
    static let tasks: [Shape] = [
        Shape("async let", end: .asyncLet, asyncLet),
        Shape("async let of an actor", end: .asyncLet, asyncLetActor),
        Shape("task group", end: .taskGroup, taskGroup),
        Shape("throwing task group", end: .taskGroup, throwingTaskGroup),
        Shape("discarding task group", end: .taskGroup, discardingTaskGroup),
        Shape("within the group's body", groupBody),
        Shape("detached", detached),
        Shape("unstructured", unstructured),
        Shape("immediate", immediate),
        Shape("cancellation handler", cancellationHandler),
        Shape("continuation's body", continuationBody),
        Shape("unsafe continuation's body", unsafeContinuationBody),
        Shape("resumed by a continuation", resumed),
        Shape("resumed with an error", resumedWithError),
        Shape("task local", taskLocal),
        Shape("task executor preference", executorPreference),
        Shape("behind another task's value", anothersValue),
    ]
    static let sequences: [Shape] = [
        Shape("for await of a stream", stream),
        Shape("for await of a throwing stream", throwingStream),
        Shape("map's transform", asyncMap),
        Shape("own sequence's next", ownSequence),
        Shape("unfolding stream", unfolding),
        Shape("sleep before", afterSleep),
    ]
}
