//go:build !linux || race

package slab

const givesBack = false // memory of free chunks
