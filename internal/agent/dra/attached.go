package dra

import (
	"k8s.io/apimachinery/pkg/types"
)

// attached is a prepared claim with RDMA cards.
type attached struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Claim     string    `json:"claim"`
	// Views are how its cards are divided among containers.
	Views []attachedView `json:"views"`
}

// attachedView is what one container gets.
type attachedView struct {
	Requests []string   `json:"requests"`
	Parts    []CardPart `json:"parts"`
	// Together are the parts of all claims by which the container has cards, where these are several.
	Together []CardPart `json:"together,omitempty"`
}

// CardPart is what a claim has of a card's device: some slots, or all of it where they are 0.
type CardPart struct {
	Device string `json:"device"`
	Slots  int    `json:"slots,omitempty"`
}

func (a attached) uid() types.UID { return a.UID }

func (a *attached) name() string { return a.Namespace + "/" + a.Claim }

// alone names a device of which the claim has all, and another claim has it as well.
func (a *attached) alone(others []attached) (device, whose string) {
	for i := range others {
		for _, v := range others[i].Views {
			for _, p := range v.Parts {
				if others[i].UID != a.UID && p.Slots == 0 && a.holds(p.Device) {
					return p.Device, others[i].name()
				}
			}
		}
	}
	return "", ""
}

func (a *attached) holds(device string) bool {
	for _, v := range a.Views {
		for _, p := range v.Parts {
			if p.Device == device {
				return true
			}
		}
	}
	return false
}

// viewsIn are views as they were made.
func viewsIn(all []attachedView) (made []view) {
	for _, v := range all {
		made = append(made, v.Requests)
	}
	return made
}
