package workload

import (
	"slices"
	"strings"
)

// SetClaim takes in what a claim, by "namespace/name", has.
func (s *Set) SetClaim(key string, is Claim) {
	c := s.claims[key]
	if c != nil && c.same(&is) {
		return
	}
	if c != nil {
		s.detach(key, c)
	}
	if delete(s.away, key); is.Away && len(is.Charges) > 0 {
		s.away[key] = true
	}
	if len(is.Charges) == 0 {
		delete(s.claims, key)
		return
	}
	c = &claim{Claim: is}
	s.claims[key] = c
	s.attribute(key, c)
}

// same reports whether nothing is to be changed for a claim.
func (c *Claim) same(is *Claim) bool {
	return c.Flies == is.Flies && c.Others == is.Others && c.Away == is.Away && c.Out == is.Out && c.Back.Equal(is.Back) &&
		equalCharges(c.Charges, is.Charges) && slices.Equal(c.Pods, is.Pods)
}

// attribute counts a claim in the workload of its first pod that is there, else by itself.
func (s *Set) attribute(key string, c *claim) {
	s.detach(key, c)
	for _, uid := range c.Pods {
		if p := s.pods[uid]; p != nil {
			p.claims[key] = true
			c.work = p.work
			s.dirty[p.work] = true
			return
		}
		if s.orphans[uid] == nil {
			s.orphans[uid] = map[string]bool{}
		}
		s.orphans[uid][key] = true // it is the first once it comes
	}
	c.work = "claim " + key
	namespace, _, _ := strings.Cut(key, "/")
	s.works[c.work] = &work{id: c.work, namespace: namespace, claim: key}
	s.dirty[c.work] = true
}

func (s *Set) detach(key string, c *claim) {
	w := s.works[c.work]
	if w == nil {
		return
	}
	s.dirty[w.id] = true
	if w.claim == key {
		w.claim = ""
	}
	for _, uid := range c.Pods {
		if p := s.pods[uid]; p != nil {
			delete(p.claims, key)
		}
		if delete(s.orphans[uid], key); len(s.orphans[uid]) == 0 {
			delete(s.orphans, uid)
		}
	}
}
