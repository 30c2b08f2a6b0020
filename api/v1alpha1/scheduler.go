package v1alpha1

import (
	"encoding/base32"
	"regexp"
)

// MostGangMembers bounds a gang.
const MostGangMembers = 4096

// ClaimNameBytes is how many random bytes the name of a claim holds that the scheduler makes.
const ClaimNameBytes = 10

// ClaimNamePattern matches what [ClaimName] makes, as a regular expression of RE2.
const ClaimNamePattern = `^` + claimStart + `[a-z2-7]{16}$`

const claimStart = "divvy-"

var claimName = regexp.MustCompile(ClaimNamePattern)

// ClaimName is the name of a claim that the scheduler makes, from random bytes: nobody can know it before.
func ClaimName(random [ClaimNameBytes]byte) string {
	return claimStart + base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding).EncodeToString(random[:])
}

// IsClaimName reports whether a name can be one of [ClaimName].
func IsClaimName(name string) bool { return claimName.MatchString(name) }
