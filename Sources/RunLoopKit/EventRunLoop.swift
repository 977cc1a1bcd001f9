public final class EventRunLoop: Sendable {}
