package import StallReports

/// A value that many outlines share, stored once.
package final class Shared<Value: Hashable & Sendable>: Hashable, Sendable {
    package let value: Value

    package init(_ value: Value) { self.value = value }

    package static func == (left: Shared, right: Shared) -> Bool { left === right || left.value == right.value }

    package func hash(into hasher: inout Hasher) { hasher.combine(value) }
}

extension Shared {
    /// The object's identity, independent of its value: a key that does not require hashing many texts.
    package struct Identity: Hashable, Sendable {
        private let shared: Shared

        package init(_ shared: Shared) { self.shared = shared }

        package static func == (left: Self, right: Self) -> Bool { left.shared === right.shared }

        package func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(shared)) }
    }
}

/// What the stalls of one fault on one loop share.
package struct OutlineTraits: Hashable, Sendable {
    package var kind: StallKind
    package var state: StallState
    package var severity: Severity
    package var type: WatchedType
    package var label: String
    package var verdict: Verdict
    package var culprit: StallReport.Culprit?
    package var culpritName: String?
    package var stackError: String?
    package var fingerprint: Fingerprint
    package var aliases: [Fingerprint]?

    package init(
        kind: StallKind,
        state: StallState,
        severity: Severity,
        type: WatchedType,
        label: String,
        verdict: Verdict,
        culprit: StallReport.Culprit?,
        culpritName: String?,
        stackError: String?,
        fingerprint: Fingerprint,
        aliases: [Fingerprint]?
    ) {
        (self.kind, self.state, self.severity, self.type) = (kind, state, severity, type)
        (self.label, self.verdict, self.culprit, self.culpritName) = (label, verdict, culprit, culpritName)
        (self.stackError, self.fingerprint, self.aliases) = (stackError, fingerprint, aliases)
    }
}

/// What the stalls of one run share.
package struct OutlineOrigin: Hashable, Sendable {
    package var run: ULID?
    package var host: String
    package var service: String?
    package var release: String?

    package init(run: ULID?, host: String, service: String?, release: String?) {
        (self.run, self.host, self.service, self.release) = (run, host, service, release)
    }
}

/// Similar stalls before a stall that were only counted.
struct OutlineRepeats: Hashable, Sendable {
    let suppressed: Int
    let repeats: StallReport.Repeats?
}

extension Sequence<StallOutline> {
    /// The first stall with each of the traits. Stalls that were read together share most of them.
    package var oncePerTraits: [StallOutline] {
        var known: Set<Shared<OutlineTraits>.Identity> = []
        return filter { known.insert(Shared.Identity($0.traits)).inserted }
    }
}

/// Traits and origins that were read, each stored once. For one thread at a time.
package struct OutlinePool: Sendable {
    private var traits: Set<Shared<OutlineTraits>> = []
    private var origins: Set<Shared<OutlineOrigin>> = []

    package init() {}

    package mutating func shared(_ outline: StallOutline) -> StallOutline {
        var outline = outline
        outline.traits = shared(outline.traits)
        outline.origin = shared(outline.origin)
        return outline
    }

    package mutating func shared(_ new: Shared<OutlineTraits>) -> Shared<OutlineTraits> {
        traits.insert(new).memberAfterInsert
    }

    package mutating func shared(_ new: Shared<OutlineOrigin>) -> Shared<OutlineOrigin> {
        origins.insert(new).memberAfterInsert
    }
}
