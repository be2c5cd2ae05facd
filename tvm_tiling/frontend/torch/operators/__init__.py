"""Converters of core ATen operators, a file per subject."""

from ..translation import merged
from .activations import table as activations
from .arithmetic import table as arithmetic
from .comparison import table as comparison
from .convolution import table as convolution
from .creation import table as creation
from .functions import table as functions
from .indexing import table as indexing
from .normalisation import table as normalisation
from .padding import table as padding
from .pooling import table as pooling
from .products import table as products
from .recurrent import table as recurrent
from .reductions import table as reductions
from .resampling import table as resampling
from .sampling import table as sampling
from .scatter import table as scatter
from .sorting import table as sorting
from .views import table as views

CONVERTERS = merged(
    [
        activations,
        arithmetic,
        comparison,
        convolution,
        creation,
        functions,
        indexing,
        normalisation,
        padding,
        pooling,
        products,
        recurrent,
        reductions,
        resampling,
        sampling,
        scatter,
        sorting,
        views,
    ]
)
