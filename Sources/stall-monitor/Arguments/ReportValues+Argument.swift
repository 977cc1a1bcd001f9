public import ArgumentParser
public import StallReports

// Values of the reports' that options take.

extension DurationText: ExpressibleByArgument {}

extension FaultOrder: ExpressibleByArgument {}
