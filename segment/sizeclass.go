package segment

import "math/bits"

// Size classes follow a small floating-point number of 3 mantissa bits, as in
// the C++ master's offset allocator: 256 classes, at most 12.5 % apart. A
// request is rounded up to its class; a free region is filed under the class
// rounded down, so every region of a class fits every request of that class.
const (
	mantissaBits  = 3
	mantissaValue = 1 << mantissaBits
	mantissaMask  = mantissaValue - 1

	classCount = 256

	// maxUnits is the largest size a class stands for, in units (class 239:
	// 15 << 28). A larger segment counts in units of several bytes.
	maxUnits = 15 << 28
)

// classUp returns the smallest class whose size is at least units, which must
// be at most maxUnits.
func classUp(units uint32) uint32 {
	if units < mantissaValue {
		return units
	}
	shift := uint32(bits.Len32(units)) - 1 - mantissaBits
	class := (shift+1)<<mantissaBits + (units>>shift)&mantissaMask
	if units&(1<<shift-1) != 0 {
		class++ // a mantissa that overflows carries into the exponent
	}
	return class
}

// classDown returns the largest class whose size is at most units.
func classDown(units uint32) uint32 {
	if units < mantissaValue {
		return units
	}
	shift := uint32(bits.Len32(units)) - 1 - mantissaBits
	return (shift+1)<<mantissaBits | (units>>shift)&mantissaMask
}

// classUnits returns the size that a class stands for.
func classUnits(class uint32) uint32 {
	exponent, mantissa := class>>mantissaBits, class&mantissaMask
	if exponent == 0 {
		return mantissa
	}
	return (mantissa | mantissaValue) << (exponent - 1)
}

// unitShift returns the log2 of the unit, in bytes, that a segment of size
// bytes counts in: 0 up to 3.75 GiB, one more for every doubling beyond.
func unitShift(size uint64) uint8 {
	var shift uint8
	for size>>shift > maxUnits {
		shift++
	}
	return shift
}
