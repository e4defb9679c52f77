"""Servers of a guest: what their packages' maintainer scripts would have set up, their settings,
and how one is started. Every script ends when its server answers."""
