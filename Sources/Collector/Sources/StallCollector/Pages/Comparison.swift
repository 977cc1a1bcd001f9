import Hummingbird
import StallReports
import StallStore

/// What is compared: two releases, two times, or both. In an address the earlier side is `before`, `before-since` and `before-until`,
/// the later one `after`, `since` and `until`.
struct Comparison {
    /// One side, with its name for users.
    struct Side {
        var name: String
        var query: StallQuery
    }

    /// The fields as given, for the form and for links. Empty if they were not.
    let fields: Fields
    /// Nil if the user has not chosen both sides yet.
    let sides: (before: Side, after: Side)?

    struct Fields {
        var before: String
        var beforeSince: String
        var beforeUntil: String
        var after: String

        /// For an address.
        var named: [(String, String)] {
            [("before", before), ("before-since", beforeSince), ("before-until", beforeUntil), ("after", after)]
                .filter { !$0.1.isEmpty }
        }
    }

    init(_ request: Request, _ question: QuestionText) throws(Refusal) {
        func text(_ name: String) -> String {
            request.questionFields.getAll(name).last.map { VisibleText.of($0, limit: 256) } ?? ""
        }
        let fields = Fields(
            before: text("before"),
            beforeSince: text("before-since"),
            beforeUntil: text("before-until"),
            after: text("after")
        )
        self.fields = fields
        let hasTimes = !fields.beforeSince.isEmpty
        guard hasTimes || fields.beforeUntil.isEmpty else {
            throw Refusal(.badRequest, "'before-until' needs 'before-since'")
        }
        guard hasTimes || (!fields.before.isEmpty && !fields.after.isEmpty) else {
            sides = nil
            return
        }
        func side(_ release: String, _ query: StallQuery) -> Side {
            var query = query
            if !release.isEmpty { query.releases = [release] }
            let time = hasTimes ? "\(moment(query.since)) to \(moment(query.until))" : ""
            return Side(name: [release, time].filter { !$0.isEmpty }.joined(separator: ", "), query: query)
        }
        var earlier = question.query
        if hasTimes { (earlier.since, earlier.until) = try question.range(fields.beforeSince, fields.beforeUntil) }
        sides = (side(fields.before, earlier), side(fields.after, question.query))
    }
}

/// The form that chooses what is compared.
struct ComparisonForm {
    let action: String
    /// The filters that the form keeps.
    let hidden: [Fact]
    let services: Choice?
    let before: [FaultsPage.Option]
    let after: [FaultsPage.Option]
    let beforeSince: String
    let beforeUntil: String
    let since: String
    let until: String

    struct Choice {
        var options: [FaultsPage.Option]
    }

    /// - Parameters:
    ///   - action: The page that compares.
    ///   - choosesService: Whether the form chooses the service, or keeps that of the address.
    init(
        _ action: String,
        _ question: QuestionText,
        _ comparison: Comparison,
        _ choices: Choices,
        choosesService: Bool
    ) {
        func options(_ names: [String], _ chosen: [String]) -> [FaultsPage.Option] {
            FaultsPage.options(names.map { ($0, $0) }, chosen: chosen.filter { !$0.isEmpty })
        }
        self.action = action
        let (query, fields) = (question.query, comparison.fields)
        hidden = PageLinks(question: question).filters
            .filter { $0.0 != "release" && !(choosesService && $0.0 == "service") }
            .map { Fact(name: $0.0, value: $0.1) }
        services = choosesService ? Choice(options: options(choices.services, query.services)) : nil
        before = options(choices.releases, [fields.before])
        after = options(choices.releases, [fields.after])
        (beforeSince, beforeUntil) = (fields.beforeSince, fields.beforeUntil)
        (since, until) = (question.since, question.until)
    }
}
