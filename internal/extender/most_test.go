package extender

import (
	"fmt"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// A pod asks for as many shares as can be placed for one, and not for more.
func TestMostShares(t *testing.T) {
	for shares, fits := range map[int]bool{alloc.MostClaims: true, alloc.MostClaims + 1: false} {
		var request v1alpha1.PodRequest
		for i := range shares {
			name := fmt.Sprint("c", i)
			request.Shares = append(request.Shares, v1alpha1.ShareRequired{Name: name, Containers: []string{name}, GPUs: 1, Memory: gib / 4, Config: weighted})
		}
		if _, err := request.Text(); (err == nil) != fits {
			t.Errorf("%d shares: %v", shares, err)
		}
	}
}
