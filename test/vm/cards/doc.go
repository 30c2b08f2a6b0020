// Package cards has tests of RDMA cards for the guest: what a container can open that is given a part of one, and how far it gets.
package cards
