package v1alpha1

import (
	"encoding/base32"
	"regexp"
)

// SchedulerName is the name of Divvy's scheduler in pods, and of its service account.
const SchedulerName = "divvy-scheduler"

// Annotations of pods that Divvy's scheduler reads.
const (
	// ClaimsAnnotation is what the claims hold that a pod names and that the scheduler makes when it binds the pod: the
	// specification of each by its name, as JSON. The webhook writes it when the pod is created.
	ClaimsAnnotation = Domain + "/claims"
	// GangAnnotation is the name of the gang to which a pod belongs. Gangs are of one namespace.
	GangAnnotation = Domain + "/gang"
	// GangSizeAnnotation is how many members a gang has, 1 to 4096. All of them name the same.
	GangSizeAnnotation = Domain + "/gang-size"
	// GangMinimumAnnotation is how many members a gang needs to run, 1 to its size; left out, it is its size.
	GangMinimumAnnotation = Domain + "/gang-minimum"
	// GangTopologyAnnotation lists labels of nodes, the widest first: LABEL=required,LABEL=preferred. All members are on
	// nodes with one value of a required label, and with as few values of a preferred one as possible.
	GangTopologyAnnotation = Domain + "/gang-topology"
	// GangShareGPUsAnnotation lets members of a gang share GPUs if it is "true".
	GangShareGPUsAnnotation = Domain + "/gang-share-gpus"
)

// MostGangMembers bounds a gang.
const MostGangMembers = 4096

// ClaimNameBytes is how many random bytes the name of a claim holds that the scheduler makes.
const ClaimNameBytes = 10

const claimStart = "divvy-"

var claimName = regexp.MustCompile(`^` + claimStart + `[a-z2-7]{16}$`)

// ClaimName is the name of a claim that the scheduler makes, from random bytes: nobody can know it before.
func ClaimName(random [ClaimNameBytes]byte) string {
	return claimStart + base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding).EncodeToString(random[:])
}

// IsClaimName reports whether a name can be one of [ClaimName].
func IsClaimName(name string) bool { return claimName.MatchString(name) }
