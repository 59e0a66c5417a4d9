package db

import "maps"

// layered is an immutable map made of layers, newest first, each a plain map that is never changed once it is here. Layers
// grow geometrically, so that adding to a map of n entries copies a logarithmic share of them, and a look-up asks a
// logarithmic number of layers.
type layered[K comparable, V any] struct {
	layers []map[K]V
}

func (l layered[K, V]) get(k K) (V, bool) {
	for _, m := range l.layers {
		if v, ok := m[k]; ok {
			return v, true
		}
	}
	var zero V
	return zero, false
}

// with is the map with more on top. It takes over more, which must not be changed any longer.
func (l layered[K, V]) with(more map[K]V) layered[K, V] {
	if len(more) == 0 {
		return l
	}
	size, k := len(more), 0
	for k < len(l.layers) && len(l.layers[k]) < 2*size {
		size += len(l.layers[k])
		k++
	}
	if k > 0 {
		all := make(map[K]V, size)
		for i := k - 1; i >= 0; i-- {
			maps.Copy(all, l.layers[i])
		}
		maps.Copy(all, more)
		more = all
	}
	layers := make([]map[K]V, 0, len(l.layers)-k+1)
	layers = append(layers, more)
	return layered[K, V]{append(layers, l.layers[k:]...)}
}
