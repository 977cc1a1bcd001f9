// Encodes and decodes the two blocks that change.

extension LiveRecordLayout {
    static func block(of status: LiveRecord.Status) -> [UInt8] {
        var block = FixedBytes(count: statusRange.count)
        block.set(status.updatedAt.sinceEpoch, at: 0)
        block.set(status.lastLookMonotonicNs, at: 8)
        block.set(UInt32(clamping: status.watched), at: 16)
        block.set(UInt32(clamping: status.unplaced), at: 20)
        block.set(UInt32(status.exitStatus == nil ? 0 : 1), at: 24)
        block.set(status.exitStatus ?? 0, at: 28)
        block.set(UInt32(status.memoryKills == nil ? 0 : 1), at: 32)
        block.set(status.memoryKills ?? 0, at: 40)
        block.set(UInt32(clamping: status.waitingReports), at: 48)
        block.seal(at: 56)
        return block.bytes
    }

    static func status(from block: FixedBytes) throws(ReportError) -> LiveRecord.Status {
        guard block.isSealed(at: 56) else { throw ReportError(.torn) }
        return LiveRecord.Status(
            updatedAt: Timestamp(sinceEpoch: block.integer(at: 0)),
            lastLookMonotonicNs: block.integer(at: 8),
            watched: Int(block.integer(at: 16, as: UInt32.self)),
            unplaced: Int(block.integer(at: 20, as: UInt32.self)),
            exitStatus: block.integer(at: 24, as: UInt32.self) == 0 ? nil : block.integer(at: 28),
            memoryKills: block.integer(at: 32, as: UInt32.self) == 0 ? nil : block.integer(at: 40),
            waitingReports: Int(block.integer(at: 48, as: UInt32.self))
        )
    }

    /// Encodes a place; nil is a free one.
    static func block(of stall: LiveStall?) -> [UInt8] {
        var block = FixedBytes(count: placeSize)
        defer { assert(block.isSealed(at: 248)) }
        guard let stall else {
            block.seal(at: 248)
            return block.bytes
        }
        block.set(UInt32(stall.state == .ongoing ? 1 : 2), at: 0)
        block.set(stall.threadID ?? 0, at: 4)
        block.set(stall.report.rawValue, at: 8)
        block.set(stall.startedMonotonicNs, at: 24)
        block.set(stall.startedAt.sinceEpoch, at: 32)
        block.set(stall.detectedAt.sinceEpoch, at: 40)
        block.set(stall.lastSeenMonotonicNs, at: 48)
        block.set(stall.lastSeenAt.sinceEpoch, at: 56)
        block.set(stall.durationNs, at: 64)
        block.set(stall.durationMinNs, at: 72)
        block.set(stall.durationMaxNs, at: 80)
        block.set(stall.watched.turn ?? 0, at: 88)
        block.set(stall.rule.tickNs, at: 96)
        block.set(UInt32(clamping: stall.rule.ticks), at: 104)
        block.set(Int32(clamping: stall.systemCall ?? -1), at: 108)
        block.set(UInt32(clamping: stall.watch), at: 112)
        block.set(stall.processID ?? 0, at: 116)
        block.set(stall.rule.name.rawValue, at: 120, count: 16)
        block.set(stall.watched.type.rawValue, at: 136, count: 16)
        block.set(stall.watched.activity ?? "", at: 152, count: 24)
        block.set(stall.watched.label, at: 176, count: labelSize)
        block.seal(at: 248)
        return block.bytes
    }

    static let labelSize = 56

    /// Decodes a place: nil if it is free. Fails if this program cannot have written the contents completely.
    static func stall(from block: FixedBytes) -> Result<LiveStall?, ReportError> {
        guard block.isSealed(at: 248) else { return .failure(ReportError(.torn)) }
        let state = block.integer(at: 0, as: UInt32.self)
        guard state != 0 else { return .success(nil) }
        let lengths = [64, 72, 80].map { block.integer(at: $0, as: Int64.self) }
        guard state <= 2, lengths.allSatisfy({ $0 >= 0 }) else { return .failure(ReportError(.malformed)) }
        let (thread, call) = (block.integer(at: 4, as: Int32.self), block.integer(at: 108, as: Int32.self))
        let process = block.integer(at: 116, as: Int32.self)
        return .success(
            LiveStall(
                report: ULID(rawValue: block.integer(at: 8)),
                state: state == 1 ? .ongoing : .recovered,
                rule: .init(
                    name: StallKind(rawValue: block.text(at: 120, count: 16)),
                    tickNs: max(1, block.integer(at: 96)),
                    ticks: max(1, Int(block.integer(at: 104, as: UInt32.self)))
                ),
                watched: watched(in: block),
                watch: Int(block.integer(at: 112, as: UInt32.self)),
                threadID: thread > 0 ? thread : nil,
                processID: process > 0 ? process : nil,
                systemCall: call < 0 ? nil : Int(call),
                startedAt: Timestamp(sinceEpoch: block.integer(at: 32)),
                startedMonotonicNs: block.integer(at: 24),
                detectedAt: Timestamp(sinceEpoch: block.integer(at: 40)),
                lastSeenAt: Timestamp(sinceEpoch: block.integer(at: 56)),
                lastSeenMonotonicNs: block.integer(at: 48),
                durationNs: lengths[0],
                durationMinNs: lengths[1],
                durationMaxNs: lengths[2]
            )
        )
    }

    private static func watched(in block: FixedBytes) -> StallReport.Watched {
        let activity = block.text(at: 152, count: 24)
        return .init(
            type: WatchedType(rawValue: block.text(at: 136, count: 16)),
            label: block.text(at: 176, count: labelSize),
            activity: activity.isEmpty ? nil : activity,
            turn: block.integer(at: 116, as: Int32.self) > 0 ? nil : block.integer(at: 88)
        )
    }
}

extension Timestamp {
    /// Nanoseconds since 1970, saturated to 64 bits (the year 2262).
    fileprivate var sinceEpoch: Int64 { nanoseconds(since: Timestamp(seconds: 0)) }

    fileprivate init(sinceEpoch nanoseconds: Int64) { self.init(seconds: 0, nanoseconds: nanoseconds) }
}
