public import ArgumentParser
public import StallReports

extension DurationText: ExpressibleByArgument {}
