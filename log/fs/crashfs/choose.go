package crashfs

import "math/rand/v2"

// Random chooses at random; a third of the seeds keep nothing, or the newest of everything, mostly.
func Random(seed uint64) Choose {
	r := rand.New(rand.NewPCG(seed, 0x57e1e))
	bias := r.IntN(6)
	return func(n int) int {
		switch {
		case bias == 0 && r.IntN(8) > 0:
			return 0
		case bias == 1 && r.IntN(8) > 0:
			return n - 1
		}
		return r.IntN(n)
	}
}

// Each calls try with every combination of choices, as long as there are at most limit of them; if there are more, with
// limit random ones. It stops when try reports false.
func Each(limit int, seed uint64, try func(Choose) bool) {
	var digits, bases []int
	for n := 0; n < limit; n++ {
		i := 0
		bases = bases[:0]
		if !try(func(n int) int {
			if i == len(digits) {
				digits = append(digits, 0)
			}
			bases = append(bases, n)
			i++
			return digits[i-1]
		}) {
			return
		}
		all := 1
		for _, b := range bases {
			if all *= b; all > limit {
				break
			}
		}
		if all > limit {
			for n := range limit {
				if !try(Random(seed + uint64(n))) {
					return
				}
			}
			return
		}
		digits = digits[:len(bases)]
		at := len(digits) - 1
		for at >= 0 && digits[at] == bases[at]-1 {
			digits = digits[:at]
			at--
		}
		if at < 0 {
			return
		}
		digits[at]++
	}
}
