package doctor

import (
	"slices"

	"github.com/divvy-gpu/divvy/internal/version"
)

// ReportVersion is that of [Report]: as long as it stays, fields are added and none changes or goes.
const ReportVersion = 1

// Report is the answer for programs.
type Report struct {
	Version int `json:"version"`
	// Divvy is the version of the program that looked.
	Divvy string `json:"divvy"`
	// Works is true where `divvy run` would work, and in a share where its programs do.
	Works  bool    `json:"works"`
	Checks []Check `json:"checks"`
}

// NewReport sums checks up.
func NewReport(checks []Check) Report {
	failed := slices.ContainsFunc(checks, func(c Check) bool { return c.Status == Fail })
	return Report{Version: ReportVersion, Divvy: version.Full(), Works: !failed, Checks: checks}
}
