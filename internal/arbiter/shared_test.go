package arbiter_test

import (
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/page"
)

// The pages' unit of rates is the arbiter's: this compiles only while both are equal. Package arbiter imports none of ours,
// so it cannot take the constant from there.
const _ = uint(arbiter.Whole-page.Whole) + uint(page.Whole-arbiter.Whole)
