import HTTPTypes
import Hummingbird
import Logging
import Mustache
import NIOCore
import StallExport
import StallReading
import StallReports
import StallStore

/// The pages for users. Only the flame graph and the live page need a script, and no page loads anything from another site.
struct PageRoutes {
    let store: any StallStore
    let readers: ClientLimit
    /// Limits how many pages of faults read reports at a time. More wait, because it takes milliseconds.
    private let merging = TaskLimit(width: 4, waitingLimit: 200)

    init(store: any StallStore, readers: ClientLimit) { (self.store, self.readers) = (store, readers) }

    func add(to router: some RouterMethods<CollectorContext>) {
        router.question("/") { question, _, _ in try await Self.page("faults", faults(question)) }
        router.question("faults/:fingerprint") { question, _, context in
            try await Self.page("fault", fault(fingerprint(context), question))
        }
        router.question("faults/:fingerprint/flame") { question, request, context in
            try await flame(fingerprint(context), request, question)
        }
        router.question("flame") { question, request, _ in try await flame(nil, request, question) }
        router.question("compare") { question, request, _ in
            try await Self.page("compare", compare(request, question))
        }
        router.question("timeline") { question, _, _ in try await Self.page("timeline", timeline(question)) }
        router.question("live") { question, _, _ in try await Self.page("live", live(question)) }
        router.get("reports/:id") { _, context in
            let json = try await report(context, store)
            do throws(ReportError) {
                return Self.page("report", ReportPage(try StallReport(json: json), team: context.caller?.team ?? ""))
            } catch {
                throw Refusal(.unprocessableContent, "the report cannot be read: \(error)")
            }
        }
    }

    private func faults(_ question: QuestionText) async throws -> FaultsPage {
        // One more than the page shows, which then knows whether these are all.
        async let list = store.faults(question.query, by: question.order, limit: question.limit + 1)
        async let choices = store.choices(question.query)
        async let alerts = store.alerts()
        // The part of the store that does not answer may have the alerts.
        let known = try await list.isPartial ? (try? alerts) ?? [] : alerts
        return try await FaultsPage(question, list, choices, known)
    }

    private func fault(_ fingerprint: Fingerprint, _ question: QuestionText) async throws -> FaultDetailPage {
        let fault = try await store.neededFault(fingerprint, question.query)
        async let days = store.days(of: fingerprint, question.query)
        // Not the longest ones of all: a store finds these only by looking at each.
        let stalls = try await store.stalls(
            question.query,
            of: fingerprint,
            longestFirst: false,
            limit: QuestionText.limits.upperBound
        )
        async let stacks = stacks(of: stalls, question.query.team)
        var latest: StallReport?
        if let id = fault.latest, let json = try await store.report(id, team: question.query.team) {
            latest = try? StallReport(json: json)
        }
        return try await FaultDetailPage(question, fault, latest, stacks, days, stalls)
    }

    /// The reports whose stacks a fault's page shows: few, so that it opens at once. The flame graph has more.
    static let mergedReports = 20

    /// The stacks of the longest of the stalls.
    private func stacks(of stalls: [StoredStall], _ team: String) async throws -> (tree: StackTree, reports: Int) {
        let longest = Array(stalls.sorted { $1.durationNs < $0.durationNs }.prefix(Self.mergedReports))
        do {
            return try await merging.pass {
                var (tree, count) = (StackTree(), 0)
                _ = try await store.eachReport(of: longest, team: team) { report in
                    tree.add(report)
                    count += 1
                }
                return (tree, count)
            }
        } catch is TaskLimit.Crowded {
            throw Refusal(.tooManyRequests, "too many pages of faults are open at once", [.retryAfter: "1"])
        }
    }

    private func live(_ question: QuestionText) async throws -> LivePage {
        // The place is read first: a stall that arrives between the two queries is then shown once, because ids are unique.
        let place = try await store.lastPlace()
        let stalls = try await store.stalls(question.query, of: nil, longestFirst: false, limit: question.limit)
        return LivePage(
            team: question.query.team,
            place: place,
            feed: PageLinks(question: question).live,
            rows: stalls.map { LiveStall($0) }
        )
    }

    private func compare(_ request: Request, _ question: QuestionText) async throws -> ComparePage {
        let comparison = try Comparison(request, question)
        let choices = try await store.choices(question.query)
        guard let sides = comparison.sides else { return ComparePage(question, choices, comparison, nil) }
        async let old = faults(nil, sides.before.query)
        async let new = faults(nil, sides.after.query)
        return try await ComparePage(question, choices, comparison, (old, new))
    }

    private func timeline(_ question: QuestionText) async throws -> TimelinePage {
        async let choices = store.choices(question.query)
        guard !question.query.hosts.isEmpty else { return try await TimelinePage(question, choices, nil) }
        async let stalls = store.stalls(question.query, of: nil, longestFirst: false, limit: TimelinePage.limit)
        return try await TimelinePage(question, choices, stalls)
    }

    static func page(_ template: String, _ content: Any, status: HTTPResponse.Status = .ok) -> Response {
        let text = Templates.library.render(content, withTemplate: template) ?? ""
        return JSONAnswer.bytes(
            Array(text.utf8),
            type: "text/html; charset=utf-8",
            status: status,
            headers: [.cacheControl: "no-store"]
        )
    }
}

/// The files to which pages link. They are the same for all teams.
struct AssetRoutes {
    /// With a hash of each: another version of the collector has others of the same names.
    private static let assets = [
        ("style.css", "text/css; charset=utf-8", Templates.style),
        ("flame.css", "text/css; charset=utf-8", FlameGraphView.style),
        ("flame.js", "text/javascript; charset=utf-8", FlameGraphView.script),
        ("icon.svg", "image/svg+xml", Templates.icon),
        ("live.js", "text/javascript; charset=utf-8", LivePage.script),
    ].map { name, type, text in
        (name: name, type: type, text: text, hash: SHA256.base64(of: text))
    }

    func add(to router: some RouterMethods<CollectorContext>) {
        for (name, type, text, hash) in Self.assets {
            router.get("assets/\(name)") { request, context in
                // A browser asks each time whether it still has the present one.
                try await request.ifNoneMatch(
                    headers: [.cacheControl: "no-cache"],
                    eTag: "\"\(hash)\"",
                    context: context
                ) { JSONAnswer.bytes(Array(text.utf8), type: type) }
            }
        }
    }
}

/// Headers for every answer, including errors: no page may load anything from another site, be framed, or be interpreted as
/// another content type.
struct SafetyHeaders: RouterMiddleware {
    private static let policy =
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

    func handle(
        _ request: Request,
        context: CollectorContext,
        next: (Request, CollectorContext) async throws -> Response
    ) async throws -> Response {
        var response: Response
        do {
            response = try await next(request, context)
        } catch let error as Refusal {
            response = try error.response(from: request, context: context)
        } catch let error as any HTTPResponseError {
            // The router's own error has no message.
            let reason = error.status == .notFound ? "no such path, or not by this method" : error.status.reasonPhrase
            response = try Refusal(error.status, reason).response(from: request, context: context)
        } catch {
            context.logger.error("a request failed", metadata: ["error": "\(error)"])
            response = try Refusal(.internalServerError, "the collector failed; its log says more")
                .response(from: request, context: context)
        }
        // The router leaves out the bodies of its paths' answers. That of a path that it does not have is made here.
        if request.method == .head { response = response.createHeadResponse() }
        if response.headers[.contentSecurityPolicy] == nil { response.headers[.contentSecurityPolicy] = Self.policy }
        response.headers[.xContentTypeOptions] = "nosniff"
        response.headers[HTTPField.Name("Referrer-Policy")!] = "same-origin"
        return response
    }
}
