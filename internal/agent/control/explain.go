package control

import (
	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc/forms"
)

// ExplainParams asks what each backend could do for a request.
type ExplainParams struct {
	Request v1alpha1.ShareRequest `json:"request"`
}

// Explanation has a verdict for each backend.
type Explanation struct {
	// Request is what was asked with all that was left out filled in.
	Request v1alpha1.ShareRequest `json:"request"`
	// Backends are the verdicts, the most preferred first.
	Backends []forms.Verdict `json:"backends"`
	// Refused says why no backend can serve the request, empty where one can.
	Refused string `json:"refused,omitempty"`
}
