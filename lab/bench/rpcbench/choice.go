package rpcbench

import (
	"math"
	"math/rand/v2"
)

// A Choice says how a run chooses the objects to read.
type Choice string

// The choices. Zipf has an exponent of 0.99, as in YCSB: of 100,000 objects the first
// 1,000 get three fifths of the calls. A batch is a run of objects, and runs are chosen
// as a whole, since callers with the same prompt read all its blocks.
const (
	Uniform Choice = "uniform"
	Zipf    Choice = "zipf"
)

// zipfExponent is that of YCSB's default ("scrambled Zipfian").
const zipfExponent = 0.99

// A zipf chooses from 0 to n-1 with a probability in proportion to
// 1/(i+1)^zipfExponent, by the method of Gray et al., "Quickly Generating
// Billion-Record Synthetic Databases", SIGMOD 1994. (The standard library's needs an exponent above 1.)
type zipf struct {
	n, zeta, second, eta float64
}

func newZipf(n int) *zipf {
	z := &zipf{n: float64(n), second: 1 + math.Pow(0.5, zipfExponent)}
	for i := range n {
		z.zeta += math.Pow(float64(i+1), -zipfExponent)
	}
	z.eta = (1 - math.Pow(2/z.n, 1-zipfExponent)) / (1 - z.second/z.zeta)
	return z
}

func (z *zipf) next(r *rand.Rand) int {
	u := r.Float64()
	switch x := u * z.zeta; {
	case x < 1 || z.n < 2:
		return 0
	case x < z.second || z.n < 3:
		return 1
	}
	return min(int(z.n*math.Pow(z.eta*u-z.eta+1, 1/(1-zipfExponent))), int(z.n)-1)
}
