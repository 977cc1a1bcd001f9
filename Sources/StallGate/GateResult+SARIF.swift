public import StallReports

extension GateResult {
    /// SARIF 2.1.0, as read by GitHub and other code scanners: a result for each fault of each finding, identified by its
    /// fingerprint, with allowed ones as suppressed. What has no source line is a notification of the run.
    ///
    /// - Parameter sourceRoot: The folder to which source paths are relative.
    public func sarif(sourceRoot: String, version: String) throws(ReportError) -> [UInt8] {
        try ReportJSON.encode(SARIFLog(self, sourceRoot, version))
    }
}

/// The used parts of SARIF 2.1.0; the names are the standard's.
private struct SARIFLog: Encodable {
    let schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    let version = "2.1.0"
    let runs: [Run]

    private enum CodingKeys: String, CodingKey {
        case schema = "$schema"
        case version, runs
    }

    struct Text: Encodable { let text: String }

    struct Run: Encodable {
        let tool: Tool
        let invocations: [Invocation]
        let originalUriBaseIds: [String: Location.Artifact]
        let results: [Result]
    }

    struct Tool: Encodable {
        let driver: Driver
        struct Driver: Encodable {
            let name = "stall-monitor"
            let version: String
            let rules: [Rule]
        }
        /// GitHub's documentation requires all of it.
        struct Rule: Encodable {
            let id: String
            let shortDescription: Text
            let fullDescription: Text
            let help = Text(
                text: "'stall-monitor show FINGERPRINT' shows where the code stalls, why, and what to do about it."
            )

            init(id: String, _ description: String) {
                (self.id, shortDescription) = (id, Text(text: description))
                fullDescription = shortDescription
            }
        }
    }

    struct Invocation: Encodable {
        let executionSuccessful: Bool
        let toolExecutionNotifications: [Notification]
        struct Notification: Encodable {
            let level: String
            let message: Text
        }
    }

    struct Result: Encodable {
        let ruleId: String
        let level: String
        let message: Text
        let locations: [Location]?
        let partialFingerprints: [String: String]?
        let suppressions: [Suppression]?
    }

    struct Suppression: Encodable {
        let kind = "external"
        let justification: String
    }

    struct Location: Encodable {
        let physicalLocation: PhysicalLocation
        struct PhysicalLocation: Encodable {
            let artifactLocation: Artifact
            let region: Region
        }
        struct Artifact: Encodable {
            let uri: String
            var uriBaseId: String?
        }
        struct Region: Encodable { let startLine: Int }
    }

    init(_ result: GateResult, _ root: String, _ version: String) {
        let remarks = result.remarks
        // GitHub rejects the whole file if one result has no location.
        let shown = remarks.filter { $0.place != nil }
        let rules = Set(shown.map(\.rule)).sorted().map {
            Tool.Rule(id: $0, Self.descriptions[$0] ?? $0)
        }
        let notices = remarks.filter { $0.place == nil }
        runs = [
            Run(
                tool: Tool(driver: .init(version: version, rules: rules)),
                invocations: [
                    Invocation(
                        executionSuccessful: result.doubts.isEmpty,
                        toolExecutionNotifications: notices.map {
                            .init(level: $0.level.rawValue, message: Text(text: $0.text))
                        }
                    )
                ],
                originalUriBaseIds: [
                    "SRCROOT": .init(uri: "file://\(Self.uri(root.hasSuffix("/") ? root : root + "/"))")
                ],
                results: shown.map { Self.result($0, root) }
            )
        ]
    }

    private static func result(_ remark: GateRemark, _ root: String) -> Result {
        Result(
            ruleId: remark.rule,
            level: remark.level.rawValue,
            message: Text(text: remark.message),
            locations: remark.place.map { place in
                let file = place.file(in: root)
                let isInside = !file.hasPrefix("/")
                let artifact = Location.Artifact(
                    uri: isInside ? uri(file) : "file://\(uri(file))",
                    uriBaseId: isInside ? "SRCROOT" : nil
                )
                return [
                    Location(physicalLocation: .init(artifactLocation: artifact, region: .init(startLine: place.line)))
                ]
            },
            partialFingerprints: remark.fingerprint.map { fingerprint in
                let parts = fingerprint.rawValue.split(separator: ":")
                return ["stallFingerprint/\(parts[0])": String(parts[1])]
            },
            suppressions: remark.excuse.map { [Suppression(justification: $0)] }
        )
    }

    /// RFC 3986: everything except unreserved characters and slashes is percent-encoded.
    private static func uri(_ path: String) -> String {
        path.utf8.map { byte in
            let character = Character(UnicodeScalar(byte))
            let isPlain = byte < 128 && (character.isLetter || character.isNumber || "-._~/".contains(character))
            return isPlain ? String(character) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
        }.joined()
    }

    private static let descriptions = [
        "stall_count": "More stalls than the budget permits",
        "stall_rate": "More stalls in an hour watched than the budget permits",
        "stall_length": "A stall that lasted longer than the budget permits",
        "blocked_share": "A larger share of the watched time stalled than the budget permits",
        "turn_p99": "99 of 100 turns of a loop took longer than the budget permits",
        "turn_length": "A turn of a loop took longer than the budget permits",
        "expired_allowance": "An allowance whose last day is over",
        "new_fault": "Code that stalls, and did not in the baseline",
        "worse_rate": "Code that stalls more often than in the baseline",
        "longer_stalls": "Code that stalls for longer than in the baseline",
        "allowed": "A stall that is allowed",
    ]
}
