package drivers

import (
	"slices"
	"testing"
)

// asked are the questions in which simgpu is held against the drivers. What functions leave in their outputs beside a
// status is not among them.
func asked() []Question {
	return slices.DeleteFunc(slices.Clone(Questions), func(q Question) bool { return q.Name == "outputs" })
}

func TestSimulatedDriverAnswersAsTheDriver(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range pairs(t) {
		s, err := p.Simulate(t.Context())
		must(t, err)
		t.Run(p.Version, func(t *testing.T) {
			for _, q := range asked() {
				t.Run(q.String(), func(t *testing.T) {
					result, err := s.Compare(t.Context(), q)
					must(t, err)
					unexpected := s.Unexpected(result)
					for _, d := range unexpected[:min(10, len(unexpected))] {
						t.Error(d)
					}
					for _, d := range result.Differences {
						for _, k := range differing {
							seen[k.question+k.answer] = seen[k.question+k.answer] || s.keeps(k, q, d)
						}
					}
					t.Logf("%d answers, %d differ, %d of them without a reason", result.Answers, len(result.Differences), len(unexpected))
				})
			}
		})
	}
	for _, k := range differing {
		if !seen[k.question+k.answer] {
			t.Errorf("no driver differs any more where %s answers %s: %s", k.question, k.answer, k.reason)
		}
	}
}
